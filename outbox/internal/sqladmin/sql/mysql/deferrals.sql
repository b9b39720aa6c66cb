-- Why rows are deferred: what blocks their keys, or makes them wait alone. Rows are told by their ids. @ids (a JSON list)
-- Plan: for each row one probe by primary key, one of {{name}}_blocks_key and one of the blocks by primary key.
SELECT m.id, TRUE, w.reason, {{uuid w.block_message_id}}, CASE WHEN w.wake_at <> '9999-12-31' THEN {{micros w.wake_at}} END
  FROM {{ids @ids}} AS asked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = asked.item
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_key)
    ON w.key_hash = UNHEX(SHA2(m.ordering_key, 256)) AND w.target_broker = m.target_broker AND w.shard = m.shard
 UNION ALL
SELECT asked.item, FALSE, w.reason, {{uuid w.block_message_id}}, CASE WHEN w.wake_at <> '9999-12-31' THEN {{micros w.wake_at}} END
  FROM {{ids @ids}} AS asked
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = asked.item
 WHERE w.ordering_key IS NULL
