-- Take the token of a redriven message that is handled, by a handler that has not taken it itself.
-- ?1 consumer, ?2 message id, ?3 source.
-- Plan: one lookup in the primary key.
DELETE FROM {{table}}
 WHERE consumer = ?1 AND message_id = UNHEX(REPLACE(?2, '-', '')) AND source = ?3
   AND status = 'redriven'
