-- Remove one batch of rows of one status, which is filled in. $1 retention in microseconds, $2
-- limit. The status is tested again on the outer statement: a row that was redriven meanwhile
-- stays. What another transaction has locked is passed over. It is put in words that no index answers, or the
-- planner would use that for the removal where it knows of few rows.
-- Plan: one range scan of {{name}}_age and one TID scan for the removal.
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}}
     WHERE status = '{{status}}'
       AND updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
     ORDER BY updated_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM {{table}} AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status IS NOT DISTINCT FROM '{{status}}'
   AND m.updated_at + $1::bigint * interval '1 microsecond' < statement_timestamp()
