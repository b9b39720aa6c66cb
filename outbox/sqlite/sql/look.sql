-- What would a claim see? Named parameters: broker, lane, window, now.
SELECT count(*), coalesce(max(ready), 0)
  FROM (SELECT coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now AS ready
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE target_broker = :broker AND lane = :lane AND finished_at IS NULL AND parked = 0
         ORDER BY id
         LIMIT :window)
