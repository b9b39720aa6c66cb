-- Why rows are deferred: what blocks their keys in their shards, or makes them wait alone. Rows are told by their ids. @ids (a JSON list)
-- Plan: for each row one probe by primary key, one of {{name}}_blocks_key and one of the blocks by primary key.
SELECT m.id
     , true AS by_key
     , w.reason
     , lower(w.block_message_id)
     , nullif(w.wake_at, 9223372036854775807)
  FROM json_each(@ids) AS asked
 CROSS JOIN {{table}} AS m
 CROSS JOIN {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
 WHERE m.id = asked.value AND w.target_broker = m.target_broker AND w.ordering_key = m.ordering_key AND w.shard = m.shard
 UNION ALL
SELECT asked.value, false, w.reason, lower(w.block_message_id), nullif(w.wake_at, 9223372036854775807)
  FROM json_each(@ids) AS asked
 CROSS JOIN {{table}}_key_blocks AS w
 WHERE w.block_id = asked.value AND w.ordering_key IS NULL
