-- Win a message, or lose it: the answer is 'won', or the status of a row that is not ours to
-- handle, and the type that it was recorded with. @p1 consumer, @p2 message id, @p3 type, @p4
-- source.
-- Plan: seeks of {{name}}_pkey.
SET NOCOUNT ON;
DECLARE @status nvarchar(16), @type nvarchar(512), @won bit = 0;
{{lock_message}}
SELECT @status = status, @type = type
  FROM {{table}} WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
IF @status IS NULL OR (@status IN (N'failed', N'redriven', N'expected') AND (@type IS NULL OR @type = @p3))
    SET @won = 1;
IF @status IS NULL
    INSERT INTO {{table}} (consumer, message_id, status, updated_at, type, source)
    VALUES (@p1, @p2, N'handled', SYSUTCDATETIME(), @p3, @p4);
ELSE IF @won = 1
    UPDATE {{table}}
       SET status = N'handled'
         , updated_at = SYSUTCDATETIME()
         , type = @p3
         , last_error = NULL
         , attributes = NULL
         , payload = NULL
     WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
SELECT CASE @won WHEN 1 THEN N'won' ELSE @status END AS fanout_outcome, COALESCE(@type, N'') AS fanout_type, @p4 AS fanout_source;
