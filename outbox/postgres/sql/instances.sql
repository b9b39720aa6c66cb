-- All instances, oldest first.
SELECT instance_id::text, name, host, pid, version, started_at, seen_at, work
  FROM {{table}}_instances
 ORDER BY started_at, instance_id
