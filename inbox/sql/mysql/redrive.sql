-- Redrive dead letters: they may be tried again, with a fresh budget of attempts. ?1 consumer, ?2
-- message ids as a JSON array, ?3 source, or '' for all.
-- Plan: one lookup in the primary key for each id.
UPDATE JSON_TABLE(?2, '$[*]' COLUMNS (item CHAR(36) PATH '$')) AS listed
 STRAIGHT_JOIN {{table}} AS m ON m.consumer = ?1 AND m.message_id = UNHEX(REPLACE(listed.item, '-', ''))
   SET m.status = 'redriven', m.attempts = 0, m.updated_at = UTC_TIMESTAMP(6)
 WHERE (?3 = '' OR m.source = ?3)
   AND m.status = 'dead_letter'
