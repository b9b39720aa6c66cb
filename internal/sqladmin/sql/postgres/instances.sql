-- All instances, oldest first. The last columns tell those that have not been seen for a day, and what time it is.
SELECT instance_id::text, name, host, pid, version, started_at, seen_at, work, seen_at < clock_timestamp() - interval '1 day', clock_timestamp()
  FROM {{table}}_instances
 ORDER BY started_at, instance_id
