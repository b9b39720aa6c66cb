-- Count a failed attempt, or make a message a dead letter, where there is a token for it. Without
-- one the message is handled: then there is no row in the answer. The parameters are those of
-- count.sql.
-- Plan: a seek of {{name}}_pkey.
SET NOCOUNT ON;
DECLARE @counted TABLE (status nvarchar(16) NOT NULL, attempts int NOT NULL);
UPDATE {{table}}
   SET status = CASE WHEN attempts + @p8 >= @p9 THEN N'dead_letter' WHEN status = N'redriven' THEN N'redriven' ELSE N'failed' END
     , attempts = attempts + @p8
     , updated_at = SYSUTCDATETIME()
     , type = @p3
     , last_error = @p5
     , attributes = CASE WHEN attempts + @p8 >= @p9 THEN @p6 ELSE attributes END
     , payload = CASE WHEN attempts + @p8 >= @p9 THEN @p7 ELSE payload END
OUTPUT inserted.status, inserted.attempts INTO @counted (status, attempts)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4
   AND (type IS NULL OR type = @p3)
   AND status IN (N'expected', N'failed', N'redriven');
SELECT status AS fanout_status, attempts AS fanout_attempts FROM @counted;
