-- Is there a row that could be claimed? Named parameters: broker, now. Stops at the first row found.
SELECT EXISTS (SELECT 1
                 FROM {{table}} INDEXED BY {{name}}_open
                WHERE target_broker = :broker AND lane = 0 AND finished_at IS NULL AND parked = 0
                  AND coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now)
