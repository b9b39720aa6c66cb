-- The blocks of a key, one for each class that has one. @broker, @key
-- Plan: the blocks by {{name}}_blocks_key.
SELECT block_id, block_message_id::text, target_broker, ordering_key, shard
     , reason = 'operator' AND wake_at IS NOT DISTINCT FROM 'infinity'
     , reason = 'backoff' AND wake_at IS NULL
  FROM {{table}}_key_blocks
 WHERE ordering_key = @key AND target_broker || '' = @broker
