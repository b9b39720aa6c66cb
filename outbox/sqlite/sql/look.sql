-- What would a claim see at the head of a shard? Named parameters: broker, shard, window, now. Where a row looks ready the claim takes
-- the lock anyway, and nothing is counted.
-- Plan: one range scan of {{name}}_open that stops at the first ready row, and one more when there is none.
WITH found AS MATERIALIZED (
    SELECT EXISTS (SELECT 1
                     FROM (SELECT locked_until
                             FROM {{table}} INDEXED BY {{name}}_open
                            WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                            ORDER BY id
                            LIMIT :window)
                    WHERE coalesce(locked_until, 0) <= :now) AS ready
)
SELECT count(*), coalesce(sum(status <> 'processing'), 0), (SELECT ready FROM found)
  FROM (SELECT status
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
         ORDER BY id
         LIMIT CASE WHEN (SELECT ready FROM found) THEN 0 ELSE :window END)
