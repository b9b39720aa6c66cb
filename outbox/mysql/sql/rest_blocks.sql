-- Blocks that must wait again go back to their place. @ids (a JSON list), @shard Plan: the blocks and their rows by primary key.
{{giving way}} UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = listed.item AND w.shard = @shard
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
   SET w.wake_at = COALESCE(m.locked_until, UTC_TIMESTAMP(6))
 WHERE m.status IN ('pending', 'failed')
