-- Which lanes have work? Lane -1 alone says that the broker is paused.
-- $1 broker, $2 per lane: id below which nothing is open, $3 as of which count of reopenings
-- Plan: one row of {{name}}_pauses by primary key; per lane, one range scan of {{name}}_open that stops at the first ready row; a few probes of {{name}}_waiting_wake.
WITH broker AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM {{table}}_pauses WHERE target_broker = $1) AS paused
)
SELECT -1 AS lane FROM broker WHERE paused
 UNION ALL
SELECT known.lane
  FROM (SELECT lane
             , CASE WHEN coalesce((SELECT reopened FROM {{table}}_lanes WHERE target_broker = $1 AND lane = n.lane % 4), 0) = ($3::bigint[])[lane + 1]
                    THEN ($2::bigint[])[lane + 1] ELSE -9223372036854775808 END AS floor
          FROM generate_series(0, 11) AS n (lane)
        OFFSET 0) AS known
 WHERE NOT (SELECT paused FROM broker)
   AND (EXISTS (SELECT
                 FROM (SELECT locked_until, available_at
                         FROM {{table}} AS m
                        WHERE m.target_broker = $1 AND m.lane = known.lane AND m.finished_at IS NULL AND NOT m.parked AND m.id >= known.floor
                        ORDER BY id
                        LIMIT 20000) AS head
                WHERE (locked_until IS NULL OR locked_until <= statement_timestamp())
                  AND (available_at IS NULL OR available_at <= statement_timestamp()))
       -- A head that holds nothing but waiting rows hides what is behind it: they have to be parked.
    OR (SELECT count(*) FROM (SELECT FROM {{table}} AS m
                               WHERE m.target_broker = $1 AND m.lane = known.lane AND m.finished_at IS NULL AND NOT m.parked AND m.id >= known.floor
                               LIMIT 20000) AS head) = 20000
       -- The order, here and below, is that of the index: without it the planner may read all gates of the broker by another one.
    OR EXISTS (SELECT
                 FROM (SELECT FROM {{table}}_waiting AS w
                        WHERE w.target_broker = $1 AND w.lane = known.lane AND w.wake_at <= statement_timestamp()
                        ORDER BY w.target_broker, w.lane, w.wake_at
                        LIMIT 1) AS due)
       -- A gate that is back in the claim's way and done lets its followers through.
    OR EXISTS (SELECT
                 FROM (SELECT gate_message_id FROM {{table}}_waiting AS w
                        WHERE w.target_broker = $1 AND w.lane = known.lane AND w.wake_at IS NULL
                        ORDER BY w.target_broker, w.lane, w.wake_at
                        LIMIT 500) AS gate
                      -- No index serves this comparison of the broker, so that the planner finds the row by its message.
                 LEFT JOIN {{table}} AS m ON m.message_id = gate.gate_message_id AND m.target_broker || '' = $1
                WHERE m.message_id IS NULL OR m.finished_at IS NOT NULL))
 ORDER BY lane
