-- Is there a row that could be claimed? Named parameters: broker, now. Stops at the first row found, and in any case
-- where no claim's window reaches.
SELECT EXISTS (SELECT 1
                 FROM (SELECT locked_until, available_at
                         FROM {{table}} INDEXED BY {{name}}_open
                        WHERE target_broker = :broker AND lane = 0 AND finished_at IS NULL AND parked = 0
                        ORDER BY id
                        LIMIT 128000)
                WHERE coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now)
