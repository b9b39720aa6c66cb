-- Which lanes have work? $1 broker
-- Plan: per lane, one range scan of {{name}}_open that stops at the first ready row; a few probes of {{name}}_waiting_wake.
SELECT lane
  FROM generate_series(0, 11) AS lane
 WHERE EXISTS (SELECT
                 FROM (SELECT locked_until, available_at
                         FROM {{table}} AS m
                        WHERE m.target_broker = $1 AND m.lane = lane.lane AND m.finished_at IS NULL AND NOT m.parked
                        ORDER BY id
                        LIMIT 20000) AS head
                WHERE (locked_until IS NULL OR locked_until <= statement_timestamp())
                  AND (available_at IS NULL OR available_at <= statement_timestamp()))
       -- A head that holds nothing but waiting rows hides what is behind it: they have to be parked.
    OR (SELECT count(*) FROM (SELECT FROM {{table}} AS m
                               WHERE m.target_broker = $1 AND m.lane = lane.lane AND m.finished_at IS NULL AND NOT m.parked
                               LIMIT 20000) AS head) = 20000
    OR EXISTS (SELECT FROM {{table}}_waiting AS w
                WHERE w.target_broker = $1 AND w.lane = lane.lane AND w.wake_at <= statement_timestamp())
       -- A gate that is back in the claim's way and done lets its followers through.
    OR EXISTS (SELECT
                 FROM (SELECT gate_message_id FROM {{table}}_waiting AS w
                        WHERE w.target_broker = $1 AND w.lane = lane.lane AND w.wake_at IS NULL LIMIT 500) AS gate
                 LEFT JOIN {{table}} AS m ON m.message_id = gate.gate_message_id AND m.target_broker = $1
                WHERE m.message_id IS NULL OR m.finished_at IS NOT NULL)
 ORDER BY lane
