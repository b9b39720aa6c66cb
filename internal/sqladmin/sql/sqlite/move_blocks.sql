-- Put blocks in the places of rows, or leave them in their own: from now on they wait for nothing but that row. A block whose row is purged
-- stays as it is. Runs under the lock. @blocks (a JSON list of id, shard, to)
-- Plan: the blocks and the rows by primary key.
UPDATE {{table}}_key_blocks AS w
   SET block_id         = json_extract(moved.value, '$.to')
     , block_message_id = coalesce((SELECT message_id FROM {{table}} AS m WHERE m.id = json_extract(moved.value, '$.to')), block_message_id)
     , wake_at          = NULL
     , reason           = 'backoff'
  FROM json_each(@blocks) AS moved
 WHERE w.block_id = json_extract(moved.value, '$.id') AND w.shard = json_extract(moved.value, '$.shard') AND w.ordering_key IS NOT NULL
