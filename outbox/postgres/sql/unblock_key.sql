-- Let a key go on that waits for an operator: the next claim moves its block on. Runs under the shards' locks.
-- $1 broker, $2 ordering key
-- Plan: the block by {{name}}_blocks_key.
UPDATE {{table}}_key_blocks
   SET wake_at = NULL
     , reason  = 'backoff'
 WHERE ordering_key = $2 AND target_broker || '' = $1 AND reason = 'operator' AND wake_at = 'infinity'
