-- Let a key go on that waits for an operator: the next claim moves its block on. @broker, @key
-- Plan: the block by {{name}}_blocks_key.
{{giving way}} UPDATE {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_key)
   SET wake_at = NULL
     , reason  = 'backoff'
 WHERE key_hash = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND reason = 'operator' AND wake_at = '9999-12-31'
