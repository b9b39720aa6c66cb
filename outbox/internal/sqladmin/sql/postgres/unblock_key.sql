-- Let a key go on that waits for an operator: the next claim moves its block on. Runs under the shards' locks.
-- @broker, @key
-- Plan: the block by {{name}}_blocks_key.
UPDATE {{table}}_key_blocks
   SET wake_at = NULL
     , reason  = 'backoff'
 WHERE ordering_key = @key AND target_broker || '' = @broker AND reason = 'operator' AND wake_at = 'infinity'
