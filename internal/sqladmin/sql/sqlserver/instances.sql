-- All instances, oldest first. The last columns tell those that have not been seen for a day, and what time it is.
SELECT LOWER(CONVERT(char(36), instance_id)) AS fanout_instance
     , name
     , host
     , pid
     , version
     , started_at
     , seen_at
     , work
     , CONVERT(bit, CASE WHEN seen_at < DATEADD(DAY, -1, SYSUTCDATETIME()) THEN 1 ELSE 0 END) AS old
     , SYSUTCDATETIME() AS now
  FROM {{table}}_instances
 ORDER BY started_at, instance_id;
