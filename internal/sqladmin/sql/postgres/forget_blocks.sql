-- Remove entries of rows that wait alone. Runs under the shards' locks. @block_messages, @block_brokers, @block_shards
-- Plan: the entries by primary key.
DELETE FROM {{table}}_key_blocks AS w
 USING unnest(@block_messages::text[]::uuid[], @block_brokers::text[], @block_shards::int[]) AS gone (message_id, target_broker, shard)
 WHERE w.block_message_id = ANY (@block_messages::text[]::uuid[])
   AND w.block_message_id = gone.message_id AND w.target_broker || '' = gone.target_broker AND w.shard + 0 = gone.shard
   AND COALESCE(w.ordering_key, '') = ''
