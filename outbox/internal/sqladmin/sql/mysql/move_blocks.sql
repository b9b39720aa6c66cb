-- Rows of keys that have a block are about to come back. The first of them, where it stands at the block or before it, becomes
-- the block and is let into the claim's way; so what comes later waits for it, and can be deferred while it waits. A key that
-- waits for an operator stays as it is, unless the row that it waits behind is among those that come back.
-- Runs under the shards' locks. @ids (a JSON list). Plan: the rows by primary key, the blocks by {{name}}_blocks_key.
{{giving way}} UPDATE (SELECT MIN(m.id) AS id
          FROM {{ids @ids}} AS picked
         STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.item
         WHERE m.ordering_key IS NOT NULL
         GROUP BY m.target_broker, m.shard, SHA2(m.ordering_key, 256)) AS first
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = first.id
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_key)
    ON w.key_hash = UNHEX(SHA2(m.ordering_key, 256)) AND w.target_broker = m.target_broker AND w.shard = m.shard
   SET w.block_id         = m.id
     , w.block_message_id = m.message_id
     , w.wake_at          = NULL
     , w.reason           = 'backoff'
 WHERE m.id <= w.block_id
   AND (w.reason <> 'operator' OR w.wake_at IS NULL OR w.wake_at <> '9999-12-31' OR JSON_CONTAINS(@ids, CAST(w.block_id AS CHAR)))
