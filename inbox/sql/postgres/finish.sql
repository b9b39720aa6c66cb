-- Note that a redriven message is handled, by a handler that has not noted it itself. $1 consumer,
-- $2 message id, $3 source.
-- Plan: one lookup in {{name}}_pkey. The status is put in words that no index answers.
UPDATE {{table}}
   SET status = 'handled', updated_at = statement_timestamp(), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = $1 AND message_id = $2 AND source = $3
   AND status IS NOT DISTINCT FROM 'redriven'
