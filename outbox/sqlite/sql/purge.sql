-- Remove one batch of finished rows. Named parameters: broker, status, before, limit. The status is tested again on the
-- outer statement: a row that was requeued meanwhile stays. So does one for which a key waits until an operator acts.
DELETE FROM {{table}}
 WHERE id IN (SELECT id
                FROM {{table}} AS m INDEXED BY {{name}}_finished
               WHERE target_broker = :broker AND status = :status AND finished_at IS NOT NULL AND finished_at < :before
                 AND NOT (:status = 'abandoned' AND EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w
                                                             WHERE w.block_id = m.id AND w.reason = 'operator' AND w.wake_at = 9223372036854775807))
               ORDER BY finished_at
               LIMIT :limit)
   AND status = :status AND finished_at < :before
