-- The blocks that are back in the claim's way and must be moved: those that are done, and those that must wait again.
-- Named parameters: broker, shard, now.
-- Plan: one range scan of {{name}}_blocks_wake, the blocks' rows by primary key.
SELECT block.block_id, block.ordering_key, m.id IS NULL OR m.finished_at IS NOT NULL AS done
  FROM (SELECT block_id, ordering_key
          FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
         WHERE target_broker = :broker AND shard = :shard AND wake_at IS NULL
         ORDER BY block_id
         LIMIT 500) AS block
  LEFT JOIN {{table}} AS m ON m.id = block.block_id
 WHERE m.id IS NULL OR m.finished_at IS NOT NULL
    OR m.status IN ('pending', 'failed') AND max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) > :now
 ORDER BY block.block_id
