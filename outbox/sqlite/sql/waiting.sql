-- How many rows at the head of a shard wait for a time? Named parameters: broker, shard, now. Plan: one range scan of {{name}}_open.
SELECT count(*)
  FROM (SELECT status, locked_until
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
         ORDER BY id
         LIMIT 20000)
 WHERE status <> 'processing' AND coalesce(locked_until, 0) > :now
