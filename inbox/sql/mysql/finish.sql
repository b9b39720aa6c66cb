-- Note that a redriven message is handled, by a handler that has not noted it itself. ?1 consumer,
-- ?2 message id, ?3 source.
-- Plan: one lookup in the primary key.
UPDATE {{table}}
   SET status = 'handled', updated_at = UTC_TIMESTAMP(6), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = ?1 AND message_id = UNHEX(REPLACE(?2, '-', '')) AND source = ?3
   AND status = 'redriven'
