-- What would a claim see at the head of a shard where order is off? Named parameters: broker, shard, now. A head that holds
-- nothing but what waits, or is in other hands, hides what is behind it: then only the claim can tell.
-- Plan: one range scan of {{name}}_open that stops at the first ready row, and one more when there is none.
WITH found AS MATERIALIZED (
    SELECT EXISTS (SELECT 1
                     FROM (SELECT locked_until
                             FROM {{table}} INDEXED BY {{name}}_open
                            WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                            ORDER BY id
                            LIMIT 20000)
                    WHERE coalesce(locked_until, 0) <= :now) AS ready
), head AS MATERIALIZED (
    SELECT status <> 'processing' AS waits
      FROM {{table}} INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
     ORDER BY id
     LIMIT CASE WHEN (SELECT ready FROM found) THEN 0 ELSE 20000 END
)
SELECT 0
     , (SELECT count(*) FROM head WHERE waits)
     , (SELECT ready FROM found) OR (SELECT count(*) FROM head) = 20000
