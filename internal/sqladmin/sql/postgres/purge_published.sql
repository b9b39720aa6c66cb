-- Remove one batch of published rows. @broker, @retention in microseconds, @limit. Status and age are tested again on the outer
-- statement: a row that was requeued meanwhile stays. What another transaction has locked is passed over.
-- Plan, with settings_purge.sql: one range scan of {{name}}_published, one TID scan for the removal.
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}} AS m
     WHERE target_broker = @broker AND status = 'published' AND published_at IS NOT NULL
       AND published_at < statement_timestamp() - @retention::bigint * interval '1 microsecond'
     ORDER BY published_at
     LIMIT @limit
       FOR UPDATE SKIP LOCKED
)
DELETE FROM {{table}} AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status = 'published'
   AND m.published_at < statement_timestamp() - @retention::bigint * interval '1 microsecond'
