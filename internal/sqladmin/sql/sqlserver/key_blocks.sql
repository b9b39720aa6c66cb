-- The blocks behind which keys of a broker wait, those that wait for an operator first, then the oldest. @broker, @limit
-- A block that is done lets its followers through by itself; one that is back in the claim's way is none. A dirty read, like that of blocks
-- in ready.sql: it does not wait for locks. Errors are read by errors_of.sql, for those that are shown.
-- Plan: the 2,000 blocks of each shard that wait longest by {{name}}_blocks_wake, with a seek of {{name}}_pkey each.
SELECT TOP (@limit) w.ordering_key AS fanout_block
     , w.block_id
     , LOWER(CONVERT(char(36), w.block_message_id)) AS message_id
     , COALESCE(m.status, N'abandoned') AS status
     , w.reason
     , w.since
     , CASE WHEN w.wake_at <> '9999-12-31' THEN w.wake_at END AS until_at -- NULL: an operator must act
     , CONVERT(bit, 0) AS failed
     , CONVERT(nvarchar(max), NULL) AS last_error
     , w.shard
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT TOP (2000) g.block_id, g.shard, g.ordering_key, g.key_hash, g.block_message_id, g.wake_at, g.reason, g.since
                FROM {{table}}_key_blocks AS g WITH (INDEX({{name}}_blocks_wake), FORCESEEK, NOLOCK)
               WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at IS NOT NULL
               ORDER BY g.wake_at DESC) AS w
  LEFT JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = w.block_id
 WHERE w.ordering_key IS NOT NULL
   AND (w.wake_at = '9999-12-31' OR (m.id IS NOT NULL AND m.finished_at IS NULL))
 ORDER BY CASE WHEN w.wake_at = '9999-12-31' THEN 0 ELSE 1 END, w.since, w.block_id;
