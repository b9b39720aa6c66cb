-- Why a message was lost. $1 consumer, $2 message id.
-- Plan: one look into the primary key.
SELECT status
  FROM {{table}}
 WHERE consumer = $1 AND message_id = $2
