-- The entries among the key blocks of rows, and of their keys. Those of other rows, or of a key at another of the brokers, may be among them.
-- @message_ids, @brokers, @keys
-- Plan: the entries by primary key and by {{name}}_blocks_key.
SELECT w.block_id, w.block_message_id::text, w.target_broker, coalesce(w.ordering_key, ''), w.shard
     , w.reason = 'operator' AND w.wake_at IS NOT DISTINCT FROM 'infinity'
     , w.reason = 'backoff' AND w.wake_at IS NULL
  FROM {{table}}_key_blocks AS w
 WHERE w.block_message_id = ANY (@message_ids::text[]::uuid[]) AND w.target_broker || '' = ANY (@brokers::text[])
 UNION
SELECT w.block_id, w.block_message_id::text, w.target_broker, coalesce(w.ordering_key, ''), w.shard
     , w.reason = 'operator' AND w.wake_at IS NOT DISTINCT FROM 'infinity'
     , w.reason = 'backoff' AND w.wake_at IS NULL
  FROM {{table}}_key_blocks AS w
 WHERE w.ordering_key = ANY (@keys::text[]) AND w.target_broker || '' = ANY (@brokers::text[])
