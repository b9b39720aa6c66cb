-- Rows per broker and status, and the age in microseconds of the oldest row of each. @now
-- Plan: reads the whole table.
SELECT target_broker, status, count(*), @now - min(created_at) FROM {{table}} GROUP BY target_broker, status
