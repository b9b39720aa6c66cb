-- Blocks of which the row is abandoned have nothing to wait for: the next claim moves them on. Runs under the shards' locks.
-- @message_ids, @brokers
-- Plan: the blocks by primary key.
UPDATE {{table}}_key_blocks AS w
   SET wake_at = NULL
     , reason  = 'backoff'
  FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
 WHERE w.block_message_id = ANY (@message_ids::text[]::uuid[]) AND w.block_message_id = picked.message_id AND w.target_broker || '' = picked.target_broker
