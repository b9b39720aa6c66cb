-- Read the first open rows of a broker, payloads included, so that they are in memory. $1 broker, $2 rows of each lane
-- Plan: for each lane one range scan of {{name}}_open.
SELECT coalesce(sum(length(head.payload)), 0)
  FROM generate_series(0, 3) AS lane
 CROSS JOIN LATERAL (SELECT payload
                       FROM {{table}}
                      WHERE target_broker = $1 AND lane = lane.lane AND finished_at IS NULL AND NOT parked
                      ORDER BY id
                      LIMIT $2) AS head
