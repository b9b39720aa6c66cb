-- Blocks whose rows come back to the way of claims. @ids (a JSON list), @shard Plan: the blocks by primary key.
{{giving way}} UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = listed.item AND w.shard = @shard
   SET w.wake_at = NULL
