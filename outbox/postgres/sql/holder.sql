-- Which session has the claim lock of a shard, and for how long? A session that has had it for less than a claim may take is not reported. One that has
-- sent half of a transaction and is silent since, or does not read its answers, is ended, where it has this session's role: what it has begun
-- is rolled back, and the shard is free.
-- $1 shard of a broker, as a hash, $2 for how long at least, in microseconds, $3 after how much silence it is ended
-- Plan: functions that read shared memory.
WITH holder AS MATERIALIZED (
    SELECT l.pid
         , a.application_name
         , a.usename
         , CASE WHEN a.state LIKE 'idle in transaction%' THEN 'in a transaction and idle'
                WHEN a.wait_event = 'ClientRead' AND a.state = 'active' THEN 'silent in the middle of a transaction'
                WHEN a.wait_event = 'ClientWrite' THEN 'sending to a client that does not read'
                ELSE coalesce(a.state, 'of another role') END AS state
         , coalesce(a.xact_start, a.state_change) AS since -- NULL: of a session of another role
         , coalesce(a.state = 'active' AND a.wait_event IN ('ClientRead', 'ClientWrite') AND a.usename = current_user
                    AND greatest(a.query_start, a.state_change) <= clock_timestamp() - $3::bigint * interval '1 microsecond', false) AS silent
      FROM pg_locks AS l
      LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.classid = '{{table}}'::regclass AND l.objid = ($1::int & 4294967295)::oid
     LIMIT 1
)
SELECT concat_ws(', ', 'process ' || pid, 'application ' || nullif(application_name, ''), 'role ' || usename, state, 'since ' || since::timestamptz(0))
     , CASE WHEN silent THEN pg_terminate_backend(pid) ELSE false END
  FROM holder
 WHERE coalesce(since <= clock_timestamp() - $2::bigint * interval '1 microsecond', true)
