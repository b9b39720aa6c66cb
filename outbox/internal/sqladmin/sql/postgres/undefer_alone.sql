-- Forget that rows wait alone. Runs under the shards' locks. @message_ids, @brokers
-- Plan: the entries by primary key.
DELETE FROM {{table}}_key_blocks AS w
 USING unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
 WHERE w.block_message_id = ANY (@message_ids::text[]::uuid[]) AND w.block_message_id = picked.message_id AND w.target_broker || '' = picked.target_broker AND w.ordering_key IS NULL
