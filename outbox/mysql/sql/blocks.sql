-- Read the blocks of a shard that may be lifted, and scheduled rows that may be admitted, for a decision: of the blocks those whose time has come, and those that are back in the way of claims, each
-- with what has become of its row. @broker, @shard, @most of either kind, @admits scheduled rows
-- Plan: one range scan of {{name}}_scheduled, two of {{name}}_blocks_wake, the blocks' rows by primary key.
SELECT block.block_id, COALESCE(block.ordering_key, ''), block.ordering_key IS NOT NULL, block.due = 1
     , m.id IS NULL OR m.finished_at IS NOT NULL OR m.available_at IS NOT NULL
     , COALESCE(m.status IN ('pending', 'failed') AND COALESCE(m.locked_until > UTC_TIMESTAMP(6), FALSE), FALSE)
     , block.due = 2
  FROM ((SELECT block_id, ordering_key, 1 AS due FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
          WHERE target_broker = @broker AND shard = @shard AND wake_at <= UTC_TIMESTAMP(6)
          ORDER BY wake_at
          LIMIT @most)
         UNION ALL
        (SELECT block_id, ordering_key, 0 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
          WHERE target_broker = @broker AND shard = @shard AND wake_at IS NULL
          ORDER BY block_id
          LIMIT @most)
         UNION ALL
        (SELECT id, NULL, 2 FROM {{table}} FORCE INDEX ({{name}}_scheduled)
          WHERE target_broker = @broker AND scheduled_shard = @shard AND available_at <= UTC_TIMESTAMP(6)
          ORDER BY available_at
          LIMIT @admits)) AS block
  LEFT JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = block.block_id
 ORDER BY block.block_id
