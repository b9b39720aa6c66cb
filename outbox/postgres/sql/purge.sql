-- Remove one batch of finished rows. $1 broker, $2 retention in microseconds, $3 limit. The status and the column that
-- holds its end, published_at or finished_at, are filled in. The status is tested again on the outer statement: a row that
-- was requeued meanwhile stays. So does one for which a key waits until an operator acts.
-- Plan, with purge_settings.sql: one range scan of {{name}}_published or {{name}}_abandoned, for abandoned rows
-- a look into {{name}}_blocks_pkey each, one TID scan for the removal.
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}} AS m
     WHERE target_broker = $1 AND status = '{{status}}' AND {{published}}
       AND {{end}} < statement_timestamp() - $2::bigint * interval '1 microsecond'
       AND ('{{status}}' <> 'abandoned' -- a value, not EXISTS, of which the planner would make a join that reads all blocks
            OR (SELECT w.block_id FROM {{table}}_key_blocks AS w
                 WHERE w.block_message_id = m.message_id AND w.target_broker = m.target_broker AND w.reason = 'operator' AND w.wake_at = 'infinity') IS NULL)
     ORDER BY {{end}}
     LIMIT $3
       FOR UPDATE SKIP LOCKED
)
DELETE FROM {{table}} AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status = '{{status}}'
   AND m.{{end}} < statement_timestamp() - $2::bigint * interval '1 microsecond'
