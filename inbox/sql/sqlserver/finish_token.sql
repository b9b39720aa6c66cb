-- Take the token of a redriven message that is handled, by a handler that has not taken it itself.
-- @p1 consumer, @p2 message id, @p3 source.
-- Plan: a seek of {{name}}_pkey.
DELETE FROM {{table}}
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p3
   AND status = N'redriven'
