-- Rows that are about to come back may be blocks in a shard that is no longer theirs, since they were given another priority. What waits
-- behind them there waits until they are done. Runs under the shards' locks. @message_ids, @brokers
-- Plan: the blocks and their rows by primary key.
UPDATE {{table}}_key_blocks AS w
   SET wake_at = NULL
     , reason  = 'backoff'
  FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
  JOIN {{table}} AS m ON m.message_id = picked.message_id AND m.target_broker = picked.target_broker
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND w.block_message_id = ANY (@message_ids::text[]::uuid[])
   AND w.block_message_id = m.message_id AND w.target_broker || '' = m.target_broker AND w.shard + 0 <> m.shard
