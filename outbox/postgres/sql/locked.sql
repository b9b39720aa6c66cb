-- Which of these rows has another session locked, and who is that? It locks the others until the transaction ends, and waits for none.
-- $1 broker, $2 message ids
-- Plan: the rows by primary key, twice.
WITH unlocked AS MATERIALIZED (
    -- No index serves this comparison of the broker: see lift.sql.
    SELECT message_id FROM {{table}} WHERE message_id = ANY ($2::uuid[]) AND target_broker || '' = $1 FOR NO KEY UPDATE SKIP LOCKED
), others AS MATERIALIZED (
    SELECT id, message_id, xmax AS holder
      FROM {{table}}
     WHERE message_id = ANY ($2::uuid[]) AND target_broker || '' = $1
       AND CASE WHEN message_id IN (SELECT unnest(ARRAY(SELECT message_id FROM unlocked))) THEN false ELSE true END -- see take.sql
)
SELECT array_agg(message_id)
       -- Of the first one. (Anybody may see the locks of transactions; of sessions of another role, the process and the application's name.)
     , CASE WHEN count(*) = 0 THEN ''
            ELSE coalesce((SELECT concat_ws(', ', 'process ' || l.pid, 'application ' || nullif(a.application_name, '')
                                                , 'in a transaction since ' || a.xact_start::timestamptz(0))
                             FROM pg_locks AS l
                             LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
                            WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = (SELECT holder FROM others ORDER BY id LIMIT 1)
                            LIMIT 1), '')
            END
  FROM others
