-- Who has kept the server for long from removing dead rows, the oldest first? Any role may ask; how old the transactions of other
-- roles are, only a member of pg_read_all_stats sees that.
-- $1 from which age on, $2 the same in transactions
-- Plan: functions that read shared memory.
SELECT kind, name, role, application, since
  FROM (SELECT 'session' AS kind, pid::text AS name, coalesce(usename::text, '') AS role, coalesce(application_name, '') AS application, xact_start AS since
          FROM pg_stat_activity
         WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
           AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
           AND xact_start <= clock_timestamp() - $1::interval
        UNION ALL
        SELECT 'prepared', gid, owner::text, '', prepared
          FROM pg_prepared_xacts
         WHERE database = current_database() AND prepared <= clock_timestamp() - $1::interval
        UNION ALL
        SELECT 'slot', slot_name::text, '', '', NULL
          FROM pg_replication_slots
         WHERE age(xmin) >= $2::bigint
        UNION ALL
        SELECT 'standby', pid::text, coalesce(usename::text, ''), coalesce(application_name, ''), NULL
          FROM pg_stat_replication
         WHERE age(backend_xmin) >= $2::bigint
       ) AS holders
 ORDER BY since NULLS LAST, name
 LIMIT 5
