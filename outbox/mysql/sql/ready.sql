-- Has a shard work? For each of them; shard -1 alone says that the broker is paused. @broker, @busy: the shards to leave out, a bit each
-- Plan: per shard, one range scan of {{name}}_queue that stops at the first ready row; a few probes of {{name}}_blocks_wake.
SELECT shard
  FROM (SELECT -1 AS shard, EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = @broker) AS work
         UNION ALL
{{each shard part_ready}}) AS shards
 WHERE work
 ORDER BY shard
