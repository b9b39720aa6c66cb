-- Rows of keys that have a block are about to come back. The first of them, where it stands at the block or before it, becomes
-- the block and is let into the claim's way; so what comes later waits for it, and can be deferred while it waits. A key that
-- waits for an operator stays as it is, unless the row that it waits behind is among those that come back.
-- Runs under the shards' locks. @message_ids, @brokers
-- Plan: the rows by primary key, the blocks by {{name}}_blocks_key.
WITH first AS MATERIALIZED (
    SELECT DISTINCT ON (m.target_broker, m.ordering_key, m.shard) m.target_broker, m.ordering_key, m.id, m.message_id, m.shard
      FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
      JOIN {{table}} AS m ON m.message_id = picked.message_id AND m.target_broker = picked.target_broker
     WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.ordering_key IS NOT NULL
     ORDER BY m.target_broker, m.ordering_key, m.shard, m.id
)
UPDATE {{table}}_key_blocks AS w
   SET block_id         = first.id
     , block_message_id = first.message_id
     , wake_at         = NULL
     , reason          = 'backoff'
  FROM first
 WHERE w.ordering_key = ANY (ARRAY(SELECT ordering_key FROM first))
   AND w.ordering_key = first.ordering_key AND w.target_broker || '' = first.target_broker AND w.shard + 0 = first.shard AND first.id <= w.block_id
   AND (w.reason <> 'operator' OR w.wake_at IS DISTINCT FROM 'infinity'
        OR EXISTS (SELECT FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
                    WHERE picked.message_id = w.block_message_id AND picked.target_broker = w.target_broker))
