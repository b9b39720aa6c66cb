-- Let a key go on that waits for an operator: the next claim moves its gate on. Runs under the lanes' locks.
-- $1 broker, $2 ordering key
-- Plan: the gate by {{name}}_waiting_key.
UPDATE {{table}}_waiting
   SET wake_at = NULL
     , reason  = 'retry'
 WHERE ordering_key = $2 AND target_broker || '' = $1 AND reason = 'abandoned' AND wake_at = 'infinity'
