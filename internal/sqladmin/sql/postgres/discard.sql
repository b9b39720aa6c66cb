-- Remove abandoned rows in the name of an operator. Runs under the shards' locks. @message_ids, @brokers
-- Plan: the rows by primary key.
DELETE FROM {{table}} AS m
 USING unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.message_id = picked.message_id AND m.target_broker = picked.target_broker
