-- Bring back the next followers of a gate that is done. Named parameters: broker, key, limit.
-- Plan: one range scan of {{name}}_parked.
UPDATE {{table}}
   SET parked = 0
 WHERE id IN (SELECT id
                FROM {{table}} INDEXED BY {{name}}_parked
               WHERE target_broker = :broker AND ordering_key = :key AND parked = 1 AND finished_at IS NULL
               ORDER BY id
               LIMIT :limit)
RETURNING id
