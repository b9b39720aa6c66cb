-- Rows per broker and status, and the age in microseconds of the oldest row of each. Plan: reads the whole table.
SELECT target_broker, status, COUNT(*), COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN created_at > '1970-01-01' THEN created_at END), UTC_TIMESTAMP(6)), 0)
  FROM {{table}}
 GROUP BY target_broker, status
