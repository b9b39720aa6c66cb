-- What is recorded of messages. ?1 consumer, ?2 message ids as a JSON array, ?3 limit. The time is in microseconds since 1970: as a
-- time it would be taken for one in the time zone of the DSN.
-- Plan: one lookup in the primary key for each id.
SELECT LOWER(HEX(m.message_id)), m.source, m.status, COALESCE(m.type, ''), m.attempts, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', m.updated_at)
     , COALESCE(m.last_error, '')
  FROM (SELECT DISTINCT UNHEX(REPLACE(listed.item, '-', '')) AS message_id
          FROM JSON_TABLE(?2, '$[*]' COLUMNS (item CHAR(36) PATH '$')) AS listed) AS asked
 STRAIGHT_JOIN {{table}} AS m ON m.consumer = ?1 AND m.message_id = asked.message_id
 ORDER BY m.message_id, m.source
 LIMIT ?3
