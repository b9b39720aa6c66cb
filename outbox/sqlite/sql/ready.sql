-- Which shards have work? Shard -1 alone says that the broker is paused. Named parameters: broker, now, and busy, the shards to leave out, a bit each.
-- Plan: per shard, one range scan of {{name}}_open that stops at the first ready row; one probe of {{name}}_scheduled and a few of {{name}}_blocks_wake.
WITH broker AS MATERIALIZED (
    SELECT EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = :broker) AS paused
)
SELECT -1 AS value FROM broker WHERE paused
 UNION ALL
SELECT value
  FROM json_each('[0, 1, 2]') AS shard
 WHERE NOT (SELECT paused FROM broker)
   AND :busy >> shard.value & 1 = 0
   AND (EXISTS (SELECT 1
                 FROM (SELECT locked_until
                         FROM {{table}} AS m INDEXED BY {{name}}_open
                        WHERE m.target_broker = :broker AND m.shard = shard.value AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
                        ORDER BY m.id
                        LIMIT 20000)
                WHERE coalesce(locked_until, 0) <= :now)
       -- A head that holds nothing but waiting rows hides what is behind it: they have to be deferred.
    OR (SELECT count(*)
          FROM (SELECT 1
                  FROM {{table}} AS m INDEXED BY {{name}}_open
                 WHERE m.target_broker = :broker AND m.shard = shard.value AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
                 LIMIT 20000)) = 20000
    OR EXISTS (SELECT 1
                 FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_wake
                WHERE w.target_broker = :broker AND w.shard = shard.value AND w.wake_at <= :now)
    OR EXISTS (SELECT 1
                 FROM {{table}} AS m INDEXED BY {{name}}_scheduled
                WHERE m.target_broker = :broker AND m.shard = shard.value AND m.available_at IS NOT NULL AND m.available_at <= :now)
       -- A block that is back in the claim's way and done lets its followers through.
    OR EXISTS (SELECT 1
                 FROM (SELECT block_id
                         FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_wake
                        WHERE w.target_broker = :broker AND w.shard = shard.value AND w.wake_at IS NULL
                        ORDER BY block_id
                        LIMIT 500) AS block
                 LEFT JOIN {{table}} AS m ON m.id = block.block_id
                WHERE m.id IS NULL OR m.finished_at IS NOT NULL OR m.available_at IS NOT NULL))
 ORDER BY value
