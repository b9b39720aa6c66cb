-- Remove one batch of abandoned rows, but none for which a key waits until an operator acts. @now, @broker, @retention in microseconds, @limit
-- Plan: one range scan of {{name}}_finished, a probe of the blocks by primary key for each row.
DELETE FROM {{table}}
 WHERE id IN (SELECT id
                FROM {{table}} AS m INDEXED BY {{name}}_finished
               WHERE target_broker = @broker AND status = 'abandoned' AND finished_at IS NOT NULL AND finished_at < @now - @retention
                 AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w
                                  WHERE w.block_id = m.id AND w.reason = 'operator' AND w.wake_at = 9223372036854775807)
               ORDER BY finished_at
               LIMIT @limit)
