-- All instances, oldest first. The last column tells those that have not been seen for a day.
SELECT {{uuid instance_id}}, name, host, pid, version, {{micros started_at}}, {{micros seen_at}}, work, seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY
  FROM {{table}}_instances
 ORDER BY started_at, instance_id
