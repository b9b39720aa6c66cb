-- Try to win a message as claim.sql does, for a moment, in a transaction that is rolled back: where that has to wait, the
-- message is being handled. $1 consumer, $2 message id, $3 source.
-- Plan: one lookup in {{name}}_pkey, which is the arbiter.
INSERT INTO {{table}} (consumer, message_id, status, source)
VALUES ($1, $2, 'expected', $3)
    ON CONFLICT (consumer, message_id, source) DO UPDATE
   SET status = {{table}}.status
