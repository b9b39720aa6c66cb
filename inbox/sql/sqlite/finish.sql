-- Note that a redriven message is handled, by a handler that has not noted it itself. ?1 consumer,
-- ?2 message id, ?3 source.
-- Plan: one lookup in the primary key.
UPDATE {{table}}
   SET status = 'handled', updated_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = ?1 AND message_id = ?2 AND source = ?3
   AND status = 'redriven'
