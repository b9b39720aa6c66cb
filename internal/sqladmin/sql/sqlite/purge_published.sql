-- Remove one batch of published rows. @now, @broker, @retention in microseconds, @limit
-- Plan: one range scan of {{name}}_finished.
DELETE FROM {{table}}
 WHERE id IN (SELECT id
                FROM {{table}} INDEXED BY {{name}}_finished
               WHERE target_broker = @broker AND status = 'published' AND finished_at IS NOT NULL AND finished_at < @now - @retention
               ORDER BY finished_at
               LIMIT @limit)
