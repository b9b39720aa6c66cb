-- Redrive a batch of a consumer's dead letters. $1 consumer, $2 type, or '' for all; $3 limit. The
-- status is tested again on the outer statement: a row that another transaction has redriven meanwhile is
-- not redriven twice. It is put in words that no index answers, or the planner would use that for
-- the update.
-- Plan: a range scan of {{name}}_age, one TID scan for the update.
WITH chosen AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}}
     WHERE status = 'dead_letter' AND consumer = $1 AND ($2::text = '' OR type = $2)
     LIMIT $3
       FOR UPDATE SKIP LOCKED
)
UPDATE {{table}} AS m
   SET status = 'redriven', attempts = 0, updated_at = statement_timestamp()
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM chosen))
   AND m.status IS NOT DISTINCT FROM 'dead_letter'
