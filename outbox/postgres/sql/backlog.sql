-- Which brokers have open rows, and for how many microseconds have the first of them that could be claimed been waiting?
-- Plan: hops from one pair of broker and lane to the next in {{name}}_open, and reads a bounded number of rows of each.
WITH RECURSIVE head AS (
    (SELECT target_broker, lane FROM {{table}} WHERE finished_at IS NULL AND NOT parked ORDER BY target_broker, lane LIMIT 1)
    UNION ALL
    SELECT next.target_broker, next.lane
      FROM head
     CROSS JOIN LATERAL (SELECT m.target_broker, m.lane
                           FROM {{table}} AS m
                          WHERE m.finished_at IS NULL AND NOT m.parked AND (m.target_broker, m.lane) > (head.target_broker, head.lane)
                          ORDER BY m.target_broker, m.lane
                          LIMIT 1) AS next
)
SELECT target_broker
     , greatest(0, coalesce((extract(epoch FROM statement_timestamp() - min(waiting.since)) * 1000000)::bigint, 0))
  FROM head
  LEFT JOIN LATERAL (SELECT greatest(first.created_at, first.available_at, first.locked_until) AS since
                       FROM (SELECT m.created_at, m.available_at, m.locked_until
                               FROM {{table}} AS m
                              WHERE m.target_broker = head.target_broker AND m.lane = head.lane AND m.finished_at IS NULL AND NOT m.parked
                              ORDER BY m.id
                              LIMIT 1000) AS first
                      WHERE (first.locked_until IS NULL OR first.locked_until <= statement_timestamp())
                        AND (first.available_at IS NULL OR first.available_at <= statement_timestamp())
                      LIMIT 1) AS waiting ON true
 GROUP BY target_broker
 ORDER BY target_broker
