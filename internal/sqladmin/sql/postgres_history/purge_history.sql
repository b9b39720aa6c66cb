-- Remove one batch of a broker's rows of a day, where others keep the day. @broker, @day, @limit
-- Plan, with settings_purge.sql: in the one partition, a range scan of {{name}}_history_time, and a TID scan for the removal. A ctid is one of a partition's.
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}}_history
     WHERE target_broker = @broker
       AND published_at >= @day::text::date::timestamp AT TIME ZONE 'UTC' AND published_at < (@day::text::date + 1)::timestamp AT TIME ZONE 'UTC'
     ORDER BY published_at
     LIMIT @limit
)
DELETE FROM {{table}}_history AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.target_broker || '' = @broker -- which no index serves
   AND m.published_at >= @day::text::date::timestamp AT TIME ZONE 'UTC' AND m.published_at < (@day::text::date + 1)::timestamp AT TIME ZONE 'UTC'
