-- What is recorded of messages. ?1 consumer, ?2 message ids as a JSON array, ?3 limit.
-- Plan: one lookup in the primary key for each id.
SELECT m.message_id, m.source, m.status, coalesce(m.type, ''), m.attempts, m.updated_at, coalesce(m.last_error, '')
  FROM (SELECT DISTINCT value AS message_id FROM json_each(?2)) AS asked
 CROSS JOIN {{table}} AS m ON m.consumer = ?1 AND m.message_id = asked.message_id
 ORDER BY m.message_id, m.source
 LIMIT ?3
