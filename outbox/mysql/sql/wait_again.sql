-- A row that waits again is a block already, and keeps its key, for there may be followers behind it. @ids (a JSON list), @unordered: each of
-- the blocks waits alone
-- Plan: the rows and the blocks by primary key.
{{giving way}} UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = m.id AND w.shard = m.shard
   SET w.wake_at      = m.locked_until
     , w.ordering_key = COALESCE(w.ordering_key, CASE WHEN NOT @unordered THEN m.ordering_key END)
