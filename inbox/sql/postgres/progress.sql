-- What is recorded of messages. $1 consumer, $2 message ids as a JSON array, $3 limit.
-- Plan: one lookup in {{name}}_pkey for each id.
SELECT m.message_id::text, m.source, m.status, coalesce(m.type, ''), m.attempts, m.updated_at, coalesce(m.last_error, '')
  FROM (SELECT DISTINCT value::uuid AS message_id FROM json_array_elements_text($2::json)) AS asked
 CROSS JOIN LATERAL (SELECT * FROM {{table}} WHERE consumer = $1 AND message_id = asked.message_id) AS m
 ORDER BY m.message_id, m.source
 LIMIT $3
