-- What is recorded of messages. @p1 consumer, @p2 message ids as a JSON array, @p3 limit.
-- Plan: one seek of {{name}}_pkey for each id.
SELECT TOP (@p3) LOWER(CONVERT(char(36), m.message_id)), m.source, m.status, COALESCE(m.type, N''), m.attempts, m.updated_at, COALESCE(m.last_error, N'')
  FROM (SELECT DISTINCT CONVERT(uniqueidentifier, value) AS message_id FROM OPENJSON(@p2)) AS asked
 INNER LOOP JOIN {{table}} AS m ON m.consumer = @p1 AND m.message_id = asked.message_id
 ORDER BY m.message_id, m.source;
