-- Can the first rows of a shard be taken as they stand? Runs inside BEGIN IMMEDIATE, before the window is judged row by row.
-- Named parameters: broker, shard, window, take (no more rows than the window), bytes (of payload and headers), now.
-- Yes, when every row of the window is free and has never crashed and the broker has no blocks. That includes an empty window. Answers
-- with the rows in the window, whether so, whether a scheduled row is due, and the last row to take: where all together have more bytes, the last that stays within them,
-- or else the first. The length of a blob stands in its row, the rest of which is not read for that; of a payload that was written as
-- text, characters count.
-- Plan: a probe of {{name}}_scheduled, one range scan of {{name}}_open, and one more of its entries alone where the window is larger than what is taken.
SELECT count(*)
     , coalesce(min(simple), 1)
       AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker)
     , EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_scheduled WHERE target_broker = :broker AND shard = :shard AND available_at IS NOT NULL AND available_at <= :now)
     , CASE WHEN sum(bytes) > :bytes
            THEN (SELECT max(id)
                    FROM (SELECT id, sum(bytes) OVER so_far AS total, row_number() OVER so_far AS place
                            FROM (SELECT id, length(payload) + coalesce(length(CAST(headers AS BLOB)), 0) AS bytes
                                    FROM {{table}} INDEXED BY {{name}}_open
                                   WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                                   ORDER BY id
                                   LIMIT :take)
                          WINDOW so_far AS (ORDER BY id ROWS UNBOUNDED PRECEDING))
                   WHERE total <= :bytes OR place = 1)
            WHEN count(*) > :take
            THEN (SELECT id FROM {{table}} INDEXED BY {{name}}_open
                   WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                   ORDER BY id
                   LIMIT 1 OFFSET :take - 1)
            ELSE coalesce(max(id), 0)
            END
  FROM (SELECT id
             , length(payload) + coalesce(length(CAST(headers AS BLOB)), 0) AS bytes
             , status <> 'processing' AND crashes = 0 AND coalesce(locked_until, 0) <= :now AS simple
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
         ORDER BY id
         LIMIT :window)
