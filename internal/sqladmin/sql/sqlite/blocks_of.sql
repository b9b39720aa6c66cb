-- The entries among the key blocks of rows, and of their keys. @ids (a JSON list)
-- Plan: the rows and the entries by primary key, and those of keys by {{name}}_blocks_key.
SELECT block_id, '', target_broker, coalesce(ordering_key, ''), shard
     , reason = 'operator' AND wake_at IS 9223372036854775807
     , reason = 'backoff' AND wake_at IS NULL
  FROM {{table}}_key_blocks
 WHERE block_id IN (SELECT value FROM json_each(@ids))
 UNION
SELECT w.block_id, '', w.target_broker, w.ordering_key, w.shard
     , w.reason = 'operator' AND w.wake_at IS 9223372036854775807
     , w.reason = 'backoff' AND w.wake_at IS NULL
  FROM json_each(@ids) AS picked
 CROSS JOIN {{table}} AS m ON m.id = picked.value
 CROSS JOIN {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key ON w.target_broker = m.target_broker AND w.ordering_key = m.ordering_key
