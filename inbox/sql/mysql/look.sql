-- Why a message was lost: what is recorded of its id, under its own source before others. ?1
-- consumer, ?2 message id, ?3 source.
-- Plan: one lookup in the primary key.
SELECT status, COALESCE(type, ''), source
  FROM {{table}}
 WHERE consumer = ?1 AND message_id = UNHEX(REPLACE(?2, '-', ''))
 ORDER BY source = ?3 DESC
 LIMIT 1
