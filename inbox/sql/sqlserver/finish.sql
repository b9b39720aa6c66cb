-- Note that a redriven message is handled, by a handler that has not noted it itself. @p1 consumer,
-- @p2 message id, @p3 source.
-- Plan: a seek of {{name}}_pkey.
UPDATE {{table}}
   SET status = N'handled', updated_at = SYSUTCDATETIME(), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p3
   AND status = N'redriven'
