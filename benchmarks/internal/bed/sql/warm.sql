-- Read the first open rows of a broker, payloads included, so that they are in memory. $1 broker, $2 rows of each shard
-- Plan: for each shard one range scan of {{name}}_open.
SELECT coalesce(sum(length(head.payload)), 0)
  FROM generate_series(0, 3) AS shard
 CROSS JOIN LATERAL (SELECT payload
                       FROM {{table}}
                      WHERE target_broker = $1 AND shard = shard.shard AND finished_at IS NULL AND NOT deferred
                      ORDER BY id
                      LIMIT $2) AS head
