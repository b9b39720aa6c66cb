-- The keys of a broker that wait behind a block: for an operator, or for a time. Of each kind and shard 10,000 are read, with those of rows
-- that have no key. The last shard has no keys. @broker
-- Plan: two range scans of {{name}}_blocks_wake for each shard; the blocks' rows by primary key.
SELECT w.ordering_key
     , w.block_id
     , lower(w.block_message_id)
     , coalesce(m.status, 'abandoned') -- the row may be gone
     , w.reason
     , w.since
     , nullif(w.wake_at, 9223372036854775807)
     , false
     , NULL -- errors are read by errors_of.sql, for those that are shown
     , w.shard
  FROM (SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 0 AND wake_at = 9223372036854775807 ORDER BY block_id LIMIT 10000)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 1 AND wake_at = 9223372036854775807 ORDER BY block_id LIMIT 10000)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 0 AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT 10000)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = @broker AND shard = 1 AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT 10000)) AS w
  LEFT JOIN {{table}} AS m ON m.id = w.block_id
 WHERE w.ordering_key IS NOT NULL
