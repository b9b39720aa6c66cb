-- The blocks of a key, one for each class that has one. @broker, @key
-- Plan: the blocks by {{name}}_blocks_key.
SELECT block_id, '', target_broker, ordering_key, shard
     , reason = 'operator' AND wake_at <=> '9999-12-31'
     , reason = 'backoff' AND wake_at IS NULL
  FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_key)
 WHERE key_hash = UNHEX(SHA2(@key, 256)) AND target_broker = @broker
