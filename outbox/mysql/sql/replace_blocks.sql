-- The blocks that keys have give way to rows that were abandoned. @ids (a JSON list)
-- Plan: the rows by primary key, the blocks by {{name}}_blocks_key.
{{giving way}} UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_key)
    ON w.key_hash = UNHEX(SHA2(m.ordering_key, 256)) AND w.target_broker = m.target_broker AND w.shard = m.shard
   SET w.block_id         = m.id
     , w.block_message_id = m.message_id
     , w.wake_at          = '9999-12-31'
     , w.reason           = 'operator'
     , w.since            = UTC_TIMESTAMP(6)
