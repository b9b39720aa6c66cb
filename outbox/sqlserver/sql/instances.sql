-- All instances, oldest first. Those that have not been seen for a day stopped without a word, and are removed.
DELETE FROM {{table}}_instances WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE seen_at < DATEADD(DAY, -1, SYSUTCDATETIME());
SELECT LOWER(CONVERT(char(36), instance_id)) AS fanout_instance
     , name
     , host
     , pid
     , version
     , started_at
     , seen_at
     , work
  FROM {{table}}_instances
 ORDER BY started_at, instance_id;
