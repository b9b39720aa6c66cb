-- The keys of a broker that wait behind a block: for an operator, or for a time. Rows without a key can be among the blocks that are looked at.
-- Named parameters: broker, rows (to look at, of each kind and shard). The last shard has no keys.
-- Plan: two range scans of {{name}}_blocks_wake for each shard; the blocks' rows by primary key.
SELECT w.ordering_key
     , w.block_id
     , w.block_message_id
     , w.reason
     , w.since
     , w.wake_at
     , coalesce(m.status, '')
     , coalesce(m.last_error, '')
  FROM (SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = :broker AND shard = 0 AND wake_at = 9223372036854775807 ORDER BY block_id LIMIT :rows)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = :broker AND shard = 1 AND wake_at = 9223372036854775807 ORDER BY block_id LIMIT :rows)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = :broker AND shard = 0 AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT :rows)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                        WHERE target_broker = :broker AND shard = 1 AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT :rows)) AS w
  LEFT JOIN {{table}} AS m ON m.id = w.block_id
 WHERE w.ordering_key IS NOT NULL
