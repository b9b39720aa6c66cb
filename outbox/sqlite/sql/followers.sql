-- The first deferred rows of a key in a shard. Named parameters: broker, shard, key, limit.
-- Plan: one range scan of {{name}}_deferred_key.
SELECT id
  FROM {{table}} INDEXED BY {{name}}_deferred_key
 WHERE target_broker = :broker AND ordering_key = :key AND shard = :shard AND deferred = 1 AND finished_at IS NULL
 ORDER BY id
 LIMIT :limit
