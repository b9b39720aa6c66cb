-- Rows per broker and status, and the age in microseconds of the oldest row of each. Plan: reads the whole table.
SELECT target_broker, status, COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(created_at), UTC_TIMESTAMP(6))
  FROM {{table}}
 GROUP BY target_broker, status
