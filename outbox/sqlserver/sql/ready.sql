-- Which lanes hold a row that could be claimed? @broker
-- Rows that somebody is writing are passed over; the next look finds them.
-- Plan: per lane, one range scan of {{name}}_open that stops at the first ready row, and in any case where no claim's
-- window reaches.
SET @now = SYSUTCDATETIME();
SELECT lanes.lane AS fanout_lane
  FROM (VALUES (0), (1), (2), (3)) AS lanes (lane)
 WHERE EXISTS (SELECT 1
                 FROM (SELECT TOP (128000) m.locked_until, m.available_at
                         FROM {{table}} AS m WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                        WHERE m.target_broker = @broker AND m.lane = lanes.lane AND m.finished_at IS NULL AND m.parked = 0
                        ORDER BY m.id) AS head
                WHERE (head.locked_until IS NULL OR head.locked_until <= @now)
                  AND (head.available_at IS NULL OR head.available_at <= @now))
 ORDER BY lanes.lane;
