-- Has the broker blocks, or the shard scheduled rows that are due, and would a lift change anything? Named parameters: broker, shard, now.
-- Plan: a probe of {{name}}_blocks_key; the head of the shard in {{name}}_blocks_wake, the blocks' rows by primary key.
SELECT EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker)
       OR EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_scheduled WHERE target_broker = :broker AND shard = :shard AND available_at IS NOT NULL AND available_at <= :now)
     , EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_scheduled WHERE target_broker = :broker AND shard = :shard AND available_at IS NOT NULL AND available_at <= :now)
       OR EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                WHERE target_broker = :broker AND shard = :shard AND wake_at <= :now)
       OR EXISTS (SELECT 1
                    FROM (SELECT block_id
                            FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                           WHERE target_broker = :broker AND shard = :shard AND wake_at IS NULL
                           ORDER BY block_id
                           LIMIT 500) AS block
                    LEFT JOIN {{table}} AS m ON m.id = block.block_id
                   WHERE m.id IS NULL OR m.finished_at IS NOT NULL OR m.available_at IS NOT NULL
                      OR m.status IN ('pending', 'failed') AND coalesce(m.locked_until, 0) > :now)
