-- Rows of keys that have a block are about to come back. The first of them in the block's shard, where it stands at the block or
-- before it, becomes the block and is let into the claim's way; so what comes later waits for it, and can be deferred while it
-- waits. A key that waits for an operator stays as it is, unless the row that it waits behind is among those that come back.
-- @ids (a JSON list). Plan: the rows by primary key, the blocks by {{name}}_blocks_key.
UPDATE {{table}}_key_blocks AS w
   SET block_id         = first.id
     , block_message_id = first.message_id
     , wake_at          = NULL
     , reason           = 'backoff'
  FROM (SELECT min(id) AS id, message_id, target_broker, shard, ordering_key -- the row of min(id)
          FROM {{table}}
         WHERE id IN (SELECT value FROM json_each(@ids)) AND ordering_key IS NOT NULL
         GROUP BY target_broker, ordering_key, shard) AS first
 WHERE w.target_broker = first.target_broker AND w.ordering_key = first.ordering_key AND w.shard = first.shard AND first.id <= w.block_id
   AND (w.reason <> 'operator' OR w.wake_at IS NOT 9223372036854775807 OR w.block_id IN (SELECT value FROM json_each(@ids)))
