-- The last of those that a block let through is the key's next block. @block, @next, @shard Plan: both by primary key.
{{giving way}} UPDATE {{table}}_key_blocks AS w FORCE INDEX (PRIMARY)
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = @next
   SET w.block_id = m.id, w.block_message_id = m.message_id
 WHERE w.block_id = @block AND w.shard = @shard
