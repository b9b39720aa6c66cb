-- All instances, oldest first. The last columns tell those that have not been seen for a day, and what time it is.
SELECT {{uuid instance_id}}, name, host, pid, version, {{micros started_at}}, {{micros seen_at}}, work, seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM {{table}}_instances
 ORDER BY started_at, instance_id
