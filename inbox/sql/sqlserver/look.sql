-- Why a failed attempt was not counted. @p1 consumer, @p2 message id.
-- Plan: a seek of {{name}}_pkey.
SELECT status
  FROM {{table}}
 WHERE consumer = @p1 AND message_id = @p2
