-- No row waits for these blocks any more: their keys are free. @ids (a JSON list), @shard Plan: the blocks by primary key.
{{giving way}} DELETE w
  FROM {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = listed.item AND w.shard = @shard
