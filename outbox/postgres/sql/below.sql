-- The first open row of each shard that stands below the shard's mark, where none should be.
-- $1 broker, $2 per shard: the mark
-- Plan: per shard, one range scan of {{name}}_open that stops at the first open row.
SELECT n.shard, first.id
  FROM generate_series(0, 11) AS n (shard)
 CROSS JOIN LATERAL (SELECT id
                       FROM {{table}} AS m
                      WHERE m.target_broker = $1 AND m.shard = n.shard AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
                        AND m.id < ($2::bigint[])[n.shard + 1]
                      ORDER BY m.id
                      LIMIT 1) AS first
