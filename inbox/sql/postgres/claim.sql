-- Win a message, or lose it: one row is ours to handle, none is handled or a dead letter, or
-- recorded with another type. $1 consumer, $2 message id, $3 type, $4 source. A concurrent copy
-- waits here until the transaction of the first one ends. Under REPEATABLE READ and SERIALIZABLE a
-- copy that has waited for a commit gets the error 40001.
-- Plan: one lookup in {{name}}_pkey, which is the arbiter.
INSERT INTO {{table}} AS m (consumer, message_id, status, updated_at, type, source)
VALUES ($1, $2, 'handled', statement_timestamp(), $3, $4)
    ON CONFLICT (consumer, message_id, source) DO UPDATE
   SET status = 'handled'
     , updated_at = excluded.updated_at
     , type = excluded.type
     , last_error = NULL
     , attributes = NULL
     , payload = NULL
 WHERE m.status IN ('failed', 'redriven', 'expected') AND (m.type IS NULL OR m.type = excluded.type)
