-- All instances, oldest first. The last columns tell those that have not been seen for a day, and what time it is. @now
SELECT instance_id, name, host, pid, version, started_at, seen_at, work, typeof(seen_at) = 'integer' AND seen_at < @now - 86400000000, @now
  FROM {{table}}_instances
 ORDER BY started_at, instance_id
