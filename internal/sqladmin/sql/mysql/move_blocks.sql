-- Put blocks in the places of rows, or leave them in their own: from now on they wait for nothing but that row. A block whose row is purged
-- stays as it is, and no row is read that stays the block: another session may have locked it. Runs under the shards' locks. @blocks (a JSON list of id, shard, to)
-- Plan: the blocks and the rows by primary key.
{{giving way}} UPDATE JSON_TABLE(@blocks, '$[*]' COLUMNS (id BIGINT PATH '$.id', shard INT PATH '$.shard', to_id BIGINT PATH '$.to')) AS moved
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = moved.id AND w.shard = moved.shard
  LEFT JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = NULLIF(moved.to_id, moved.id)
   SET w.block_id         = moved.to_id
     , w.block_message_id = COALESCE(m.message_id, w.block_message_id)
     , w.wake_at          = NULL
     , w.reason           = 'backoff'
 WHERE w.ordering_key IS NOT NULL
