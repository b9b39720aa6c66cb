-- Remove one batch of finished rows. $1 broker, $2 retention in microseconds, $3 limit. The status and the column that
-- holds its end, published_at or finished_at, are filled in. The status is tested again on the outer statement: a row that
-- was requeued meanwhile stays.
-- Plan, with purge_settings.sql: one range scan of {{name}}_published or {{name}}_abandoned, one TID scan for the removal.
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}}
     WHERE target_broker = $1 AND status = '{{status}}' AND {{published}}
       AND {{end}} < statement_timestamp() - $2::bigint * interval '1 microsecond'
     ORDER BY {{end}}
     LIMIT $3
       FOR UPDATE SKIP LOCKED
)
DELETE FROM {{table}} AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status = '{{status}}'
   AND m.{{end}} < statement_timestamp() - $2::bigint * interval '1 microsecond'
