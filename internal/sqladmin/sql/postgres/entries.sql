-- The ordering keys of a broker that wait for an operator: shard, key, and the row of the block. @broker, @limit
-- Plan, with settings_browse.sql: for each shard a range scan of {{name}}_blocks_wake, until there are so many entries.
SELECT found.shard, found.ordering_key, found.block_id
  FROM (SELECT w.shard, w.ordering_key, w.block_id, w.reason
          FROM generate_series(0, 11) AS n (shard)
         CROSS JOIN LATERAL (SELECT b.shard, b.ordering_key, b.block_id, b.reason
                               FROM {{table}}_key_blocks AS b
                              WHERE b.target_broker = @broker AND b.shard = n.shard AND b.wake_at = 'infinity'
                              ORDER BY b.target_broker, b.shard, b.wake_at
                              LIMIT @limit::bigint) AS w
         LIMIT @limit) AS found
 WHERE found.reason = 'operator' AND coalesce(found.ordering_key, '') <> ''
