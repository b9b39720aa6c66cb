-- Rows per broker and status, and the age in microseconds of the oldest row of each. A dirty read: it counts what is being
-- written, and does not wait for locks.
SET @now = SYSUTCDATETIME();
SELECT target_broker AS fanout_counted
     , status
     , COUNT_BIG(*) AS row_count
     , DATEDIFF_BIG(MICROSECOND, MIN(created_at), @now) AS oldest
  FROM {{table}} WITH (NOLOCK)
 GROUP BY target_broker, status
 ORDER BY target_broker, status;
