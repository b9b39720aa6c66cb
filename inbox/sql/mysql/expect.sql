-- Create the tokens of messages that are about to be sent. ?1 consumer, ?2 message ids as a JSON
-- array, ?3 source. A message that is known already keeps its row. Two who expect the same messages
-- lock them in one order. No gap is locked.
-- Plan: one lookup in the primary key for each id.
INSERT INTO {{table}} (consumer, message_id, source, status, updated_at)
SELECT ?1, sent.message_id, ?3, 'expected', UTC_TIMESTAMP(6)
  FROM (SELECT UNHEX(REPLACE(listed.item, '-', '')) AS message_id
          FROM JSON_TABLE(?2, '$[*]' COLUMNS (item CHAR(36) PATH '$')) AS listed) AS sent
 ORDER BY sent.message_id
    ON DUPLICATE KEY UPDATE attempts = attempts
