-- What would a claim see at the head of a lane? Named parameters: broker, lane, window, now.
-- Plan: one range scan of {{name}}_open.
SELECT count(*), coalesce(sum(NOT ready AND NOT leased), 0), coalesce(max(ready), 0)
  FROM (SELECT status = 'processing' AS leased
             , coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now AS ready
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE target_broker = :broker AND lane = :lane AND finished_at IS NULL AND parked = 0
         ORDER BY id
         LIMIT :window)
