-- Remove one batch of finished rows. Named parameters: broker, status, before, limit. The status is tested again on the
-- outer statement: a row that was requeued meanwhile stays.
DELETE FROM {{table}}
 WHERE id IN (SELECT id
                FROM {{table}} INDEXED BY {{name}}_finished
               WHERE target_broker = :broker AND status = :status AND finished_at IS NOT NULL AND finished_at < :before
               ORDER BY finished_at
               LIMIT :limit)
   AND status = :status AND finished_at < :before
