-- Remove one batch of abandoned rows, but none for which a key waits until an operator acts. @broker, @retention in microseconds,
-- @limit. Status and age are tested again on the outer statement: a row that was requeued meanwhile stays. What another transaction has locked is
-- passed over.
-- Plan, with settings_purge.sql: one range scan of {{name}}_abandoned, a probe of {{name}}_blocks_pkey for each row, one TID scan
-- for the removal.
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}} AS m
     WHERE target_broker = @broker AND status = 'abandoned' AND finished_at IS NOT NULL AND published_at IS NULL
       AND finished_at < statement_timestamp() - @retention::bigint * interval '1 microsecond'
       AND (SELECT w.block_id FROM {{table}}_key_blocks AS w -- a value, not EXISTS, of which the planner would make a join that reads all blocks
             WHERE w.block_message_id = m.message_id AND w.target_broker || '' = m.target_broker AND w.reason = 'operator'
               AND (w.wake_at = 'infinity') IS TRUE) IS NULL -- no index but that of the message serves any of this
     ORDER BY finished_at
     LIMIT @limit
       FOR UPDATE SKIP LOCKED
)
DELETE FROM {{table}} AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status = 'abandoned'
   AND m.finished_at < statement_timestamp() - @retention::bigint * interval '1 microsecond'
