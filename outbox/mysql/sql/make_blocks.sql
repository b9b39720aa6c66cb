-- Make blocks of rows that wait for their time. @ids (a JSON list), @unordered: each of them waits alone
-- Plan: the rows and the blocks by primary key.
{{giving way}} INSERT INTO {{table}}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
SELECT m.target_broker, m.shard, CASE WHEN NOT @unordered THEN m.ordering_key END, m.id, m.message_id
     , m.locked_until
     , 'backoff'
  FROM {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
  LEFT JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = m.id AND w.shard = m.shard
 WHERE w.block_id IS NULL
