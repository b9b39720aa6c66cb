-- Release parked messages: they may be tried again, with a fresh budget of attempts. @p1 consumer, @p2 message ids as a JSON array.
-- Plan: one seek of {{name}}_pkey for each id.
UPDATE {{table}}
   SET status = N'released', attempts = 0, updated_at = SYSUTCDATETIME()
 WHERE consumer = @p1
   AND message_id IN (SELECT CONVERT(uniqueidentifier, value) FROM OPENJSON(@p2))
   AND status = N'parked';
