-- The entries of a broker among the key blocks that wait for an operator, or for a schedule whose time lies ahead: shard, key ('' = the row waits
-- alone), row, and whether it is an operator. @limit of each kind and shard, of which the second ones are among as many that wait for a time.
-- @broker, @limit
-- A dirty read: it does not wait for locks.
-- Plan: for each shard two seeks of {{name}}_blocks_wake that stop after so many entries.
SET @now = SYSUTCDATETIME();
SELECT found.shard AS fanout_entry, COALESCE(found.ordering_key, N'') AS ordering_key, found.block_id, CONVERT(bit, found.operator) AS operator
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT blocked.shard, blocked.ordering_key, blocked.block_id, blocked.reason, 1 AS operator
                FROM (SELECT TOP (@limit) g.shard, g.ordering_key, g.block_id, g.reason
                        FROM {{table}}_key_blocks AS g WITH (INDEX({{name}}_blocks_wake), FORCESEEK, NOLOCK)
                       WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at = '9999-12-31') AS blocked
              UNION ALL
              SELECT timed.shard, timed.ordering_key, timed.block_id, timed.reason, 0
                FROM (SELECT TOP (@limit) g.shard, g.ordering_key, g.block_id, g.reason
                        FROM {{table}}_key_blocks AS g WITH (INDEX({{name}}_blocks_wake), FORCESEEK, NOLOCK)
                       WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at > @now AND g.wake_at < '9999-12-31'
                       ORDER BY g.wake_at) AS timed) AS found
 WHERE CASE WHEN found.operator = 1 THEN CASE WHEN found.reason = N'operator' AND found.ordering_key IS NOT NULL THEN 1 ELSE 0 END
            WHEN found.reason = N'scheduled' THEN 1 ELSE 0 END = 1;
