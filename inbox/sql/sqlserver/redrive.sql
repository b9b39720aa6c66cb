-- Redrive dead letters: they may be tried again, with a fresh budget of attempts. @p1 consumer, @p2
-- message ids as a JSON array, @p3 source, or '' for all.
-- Plan: one seek of {{name}}_pkey for each id.
UPDATE {{table}}
   SET status = N'redriven', attempts = 0, updated_at = SYSUTCDATETIME()
 WHERE consumer = @p1
   AND message_id IN (SELECT CONVERT(uniqueidentifier, value) FROM OPENJSON(@p2))
   AND (@p3 = N'' OR source = @p3)
   AND status = N'dead_letter';
