-- Which lanes hold a row that could be claimed? $1 broker
-- Plan: per lane, one range scan of {{name}}_open that stops at the first ready row, and in any case where no claim's
-- window reaches.
SELECT lane
  FROM generate_series(0, 3) AS lane
 WHERE EXISTS (SELECT
                 FROM (SELECT locked_until, available_at
                         FROM {{table}} AS m
                        WHERE m.target_broker = $1 AND m.lane = lane.lane AND m.finished_at IS NULL AND NOT m.parked
                        ORDER BY id
                        LIMIT 128000) AS head
                WHERE (locked_until IS NULL OR locked_until <= statement_timestamp())
                  AND (available_at IS NULL OR available_at <= statement_timestamp()))
 ORDER BY lane
