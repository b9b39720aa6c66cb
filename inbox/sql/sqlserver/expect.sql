-- Create the tokens of messages that are about to be sent. @p1 consumer, @p2 message ids as a JSON
-- array, @p3 source. A message that is known already keeps its row.
-- Plan: one seek of {{name}}_pkey for each id.
INSERT INTO {{table}} (consumer, message_id, source, status, updated_at)
SELECT @p1, sent.message_id, @p3, N'expected', SYSUTCDATETIME()
  FROM (SELECT DISTINCT CONVERT(uniqueidentifier, value) AS message_id FROM OPENJSON(@p2)) AS sent
 WHERE NOT EXISTS (SELECT 1
                     FROM {{table}} AS m WITH (UPDLOCK, HOLDLOCK, ROWLOCK)
                    WHERE m.consumer = @p1 AND m.message_id = sent.message_id AND m.source = @p3);
