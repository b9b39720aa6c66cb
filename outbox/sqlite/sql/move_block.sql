-- The last of those that a block let through is the key's next block. Named parameters: block, next, shard.
UPDATE {{table}}_key_blocks AS w
   SET block_id = m.id, block_message_id = m.message_id
  FROM {{table}} AS m
 WHERE w.block_id = :block AND w.shard = :shard AND m.id = :next
