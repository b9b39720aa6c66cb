-- Read the blocks of a shard that may be lifted, and scheduled rows that may be admitted, for a decision: of the blocks those whose time has come, and those that are back in the way of claims, each
-- with what has become of its row. Named parameters: broker, shard, limit (of either kind), admits (scheduled rows), now.
-- Plan: one range scan of {{name}}_scheduled, two of {{name}}_blocks_wake, the blocks' rows by primary key.
SELECT block.block_id, coalesce(block.ordering_key, ''), block.ordering_key IS NOT NULL, block.due = 1
     , m.id IS NULL OR m.finished_at IS NOT NULL OR m.available_at IS NOT NULL
     , coalesce(m.status IN ('pending', 'failed') AND coalesce(m.locked_until, 0) > :now, 0)
     , block.due = 2
  FROM (SELECT *
          FROM (SELECT block_id, ordering_key, 1 AS due
                  FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                 WHERE target_broker = :broker AND shard = :shard AND wake_at <= :now
                 ORDER BY wake_at
                 LIMIT :limit)
         UNION ALL
        SELECT *
          FROM (SELECT block_id, ordering_key, 0
                  FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                 WHERE target_broker = :broker AND shard = :shard AND wake_at IS NULL
                 ORDER BY block_id
                 LIMIT :limit)
         UNION ALL
        SELECT *
          FROM (SELECT id, NULL, 2
                  FROM {{table}} INDEXED BY {{name}}_scheduled
                 WHERE target_broker = :broker AND shard = :shard AND available_at IS NOT NULL AND available_at <= :now
                 ORDER BY available_at
                 LIMIT :admits)) AS block
  LEFT JOIN {{table}} AS m ON m.id = block.block_id
 ORDER BY block.block_id
