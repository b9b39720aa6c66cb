-- The entries among the key blocks of rows, and of their keys. @ids (a JSON list)
-- Plan: the rows and the entries by primary key, and those of keys by {{name}}_blocks_key.
SELECT w.block_id, '', w.target_broker, COALESCE(w.ordering_key, ''), w.shard
     , w.reason = 'operator' AND w.wake_at <=> '9999-12-31'
     , w.reason = 'backoff' AND w.wake_at IS NULL
  FROM {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = picked.item
 UNION
SELECT w.block_id, '', w.target_broker, w.ordering_key, w.shard
     , w.reason = 'operator' AND w.wake_at <=> '9999-12-31'
     , w.reason = 'backoff' AND w.wake_at IS NULL
  FROM {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.item
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_key)
    ON w.key_hash = UNHEX(SHA2(m.ordering_key, 256)) AND w.target_broker = m.target_broker
