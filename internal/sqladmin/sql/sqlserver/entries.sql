-- The ordering keys of a broker that wait for an operator: shard, key, and the row of the block. @limit for each shard. @broker, @limit
-- A dirty read: it does not wait for locks.
-- Plan: for each shard a seek of {{name}}_blocks_wake that stops after so many entries.
SELECT TOP (@limit) found.shard AS fanout_entry, found.ordering_key, found.block_id
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT TOP (@limit) g.shard, g.ordering_key, g.block_id, g.reason
                FROM {{table}}_key_blocks AS g WITH (INDEX({{name}}_blocks_wake), FORCESEEK, NOLOCK)
               WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at = '9999-12-31') AS found
 WHERE found.reason = N'operator' AND found.ordering_key IS NOT NULL;
