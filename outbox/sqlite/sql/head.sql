-- Can the first rows of a lane be taken as they stand? Runs inside BEGIN IMMEDIATE, before the window is judged row by row.
-- Named parameters: broker, lane, window, take (no more rows than the window), unordered, now.
-- Yes, when every row of the window is free and has never crashed and, with order on, nothing outside of the window can hold one
-- back: neither a gate nor a row of another priority. That includes an empty window. Answers with the rows in the window, whether so, and
-- the last row to take.
-- Plan: one range scan of {{name}}_open, and one more of its entries alone where the window is larger than what is taken.
SELECT count(*)
     , coalesce(min(simple), 1)
       AND NOT EXISTS (SELECT 1 FROM {{table}}_waiting INDEXED BY {{name}}_waiting_key WHERE target_broker = :broker)
       AND (:unordered OR :lane = 2
            OR NOT EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_open
                            WHERE target_broker = :broker AND lane = 1 - :lane AND finished_at IS NULL AND parked = 0))
     , CASE WHEN count(*) > :take
            THEN (SELECT id FROM {{table}} INDEXED BY {{name}}_open
                   WHERE target_broker = :broker AND lane = :lane AND finished_at IS NULL AND parked = 0
                   ORDER BY id
                   LIMIT 1 OFFSET :take - 1)
            ELSE coalesce(max(id), 0)
            END
  FROM (SELECT id
             , status <> 'processing' AND crashes = 0 AND coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now AS simple
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE target_broker = :broker AND lane = :lane AND finished_at IS NULL AND parked = 0
         ORDER BY id
         LIMIT :window)
