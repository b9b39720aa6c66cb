-- All instances, oldest first. The last column tells those that have not been seen for a day.
SELECT instance_id::text, name, host, pid, version, started_at, seen_at, work, seen_at < clock_timestamp() - interval '1 day'
  FROM {{table}}_instances
 ORDER BY started_at, instance_id
