-- Has the broker blocks, and would stirring those of the shard change anything? Named parameters: broker, shard, now.
-- Plan: a probe of {{name}}_blocks_key; the head of the shard in {{name}}_blocks_wake, the blocks' rows by primary key.
SELECT EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker)
     , EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                WHERE target_broker = :broker AND shard = :shard AND wake_at <= :now)
       OR EXISTS (SELECT 1
                    FROM (SELECT block_id
                            FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                           WHERE target_broker = :broker AND shard = :shard AND wake_at IS NULL
                           ORDER BY block_id
                           LIMIT 500) AS block
                    LEFT JOIN {{table}} AS m ON m.id = block.block_id
                   WHERE m.id IS NULL OR m.finished_at IS NOT NULL
                      OR m.status IN ('pending', 'failed') AND max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) > :now)
