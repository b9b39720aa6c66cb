-- The blocks of a key, one for each class that has one. @broker, @key
-- Plan: the blocks by {{name}}_blocks_key.
SELECT block_id, '', target_broker, ordering_key, shard
     , reason = 'operator' AND wake_at IS 9223372036854775807
     , reason = 'backoff' AND wake_at IS NULL
  FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key
 WHERE target_broker = @broker AND ordering_key = @key
