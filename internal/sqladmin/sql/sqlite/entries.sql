-- The entries of a broker among the key blocks that wait for an operator, or for a schedule whose time lies ahead: shard, key ('' = the row waits
-- alone), row, and whether it is an operator. @limit of each kind and shard, of which the second ones are among as many that wait for a time.
-- @now, @broker, @limit
-- Plan: for each shard two range scans of {{name}}_blocks_wake that stop after so many entries.
SELECT found.shard, coalesce(found.ordering_key, ''), found.block_id, found.operator
  FROM (SELECT * FROM (SELECT shard, ordering_key, block_id, reason, 1 AS operator FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 0 AND wake_at = 9223372036854775807 LIMIT @limit)
         UNION ALL
        SELECT * FROM (SELECT shard, ordering_key, block_id, reason, 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 1 AND wake_at = 9223372036854775807 LIMIT @limit)
         UNION ALL
        SELECT * FROM (SELECT shard, ordering_key, block_id, reason, 0 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 0 AND wake_at > @now AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT @limit)
         UNION ALL
        SELECT * FROM (SELECT shard, ordering_key, block_id, reason, 0 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 1 AND wake_at > @now AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT @limit)
         UNION ALL
        SELECT * FROM (SELECT shard, ordering_key, block_id, reason, 0 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 2 AND wake_at > @now AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT @limit)) AS found
 WHERE CASE WHEN found.operator THEN found.reason = 'operator' AND found.ordering_key IS NOT NULL ELSE found.reason = 'scheduled' END
