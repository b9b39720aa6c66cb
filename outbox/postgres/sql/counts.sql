-- Rows per broker and status, and the age in microseconds of the oldest row of each.
SELECT target_broker, status, count(*)
     , (extract(epoch FROM statement_timestamp() - min(created_at)) * 1000000)::bigint
  FROM {{table}}
 GROUP BY target_broker, status
 ORDER BY target_broker, status
