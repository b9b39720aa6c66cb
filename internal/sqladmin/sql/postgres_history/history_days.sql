-- The days of the history that have ended, the oldest first, with the brokers whose rows are there, and for how long they have ended, in microseconds. A day
-- without rows has no broker. Days are those of UTC, as {{table}}_history_days makes them. @most brokers of a day
-- Plan, with settings_browse.sql: of each day and broker one probe of its partition's {{name}}_history_time.
WITH RECURSIVE days AS MATERIALIZED (
    SELECT day, day::timestamp AT TIME ZONE 'UTC' AS begun, (day + 1)::timestamp AT TIME ZONE 'UTC' AS ended
      FROM (SELECT to_date(right(c.relname::text, 8), 'YYYYMMDD') AS day
              FROM pg_inherits AS i
              JOIN pg_class AS c ON c.oid = i.inhrelid
             WHERE i.inhparent = '{{table}}_history'::regclass AND c.relname::text ~ '_day_[0-9]{8}$') AS parts
), publishing (day, begun, ended, broker, n) AS (
    SELECT day, begun, ended
         , (SELECT target_broker FROM {{table}}_history WHERE published_at >= begun AND published_at < ended ORDER BY target_broker LIMIT 1)
         , 1
      FROM days
     WHERE ended <= statement_timestamp()
     UNION ALL
    SELECT day, begun, ended
         , (SELECT target_broker FROM {{table}}_history WHERE published_at >= begun AND published_at < ended AND target_broker > broker ORDER BY target_broker LIMIT 1)
         , n + 1
      FROM publishing
     WHERE broker IS NOT NULL AND n < @most::bigint
)
SELECT to_char(day, 'YYYY-MM-DD'), (extract(epoch FROM statement_timestamp() - ended) * 1000000)::bigint, coalesce(broker, '')
  FROM publishing
 WHERE broker IS NOT NULL OR n = 1
 ORDER BY day, broker
