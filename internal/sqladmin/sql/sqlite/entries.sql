-- The ordering keys of a broker that wait for an operator: shard, key, and the row of the block. @limit for each shard. @broker, @limit
-- Plan: for each shard a range scan of {{name}}_blocks_wake that stops after so many entries.
SELECT found.shard, found.ordering_key, found.block_id
  FROM (SELECT * FROM (SELECT shard, ordering_key, block_id, reason FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 0 AND wake_at = 9223372036854775807 LIMIT @limit)
         UNION ALL
        SELECT * FROM (SELECT shard, ordering_key, block_id, reason FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 1 AND wake_at = 9223372036854775807 LIMIT @limit)) AS found
 WHERE found.reason = 'operator' AND found.ordering_key IS NOT NULL
 LIMIT @limit
