-- Which shards have work? Shard -1 alone says that the broker is paused. @broker, @busy: the shards to leave out, a bit each
-- It does not wait for locks: rows that another transaction is writing are passed over, and blocks are read dirty. The next look finds them.
-- Plan: per shard, one range scan of {{name}}_open that stops at the first ready row; one seek of {{name}}_scheduled and a few of {{name}}_blocks_wake.
SET @now = SYSUTCDATETIME();
IF EXISTS (SELECT 1 FROM {{table}}_pauses WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE target_broker = @broker)
    SELECT -1 AS fanout_shard;
ELSE
SELECT shards.shard AS fanout_shard
  FROM (VALUES (0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 1024), (11, 2048)) AS shards (shard, bit)
 WHERE @busy & shards.bit = 0
   AND (EXISTS (SELECT 1
                 FROM (SELECT TOP (20000) m.locked_until
                         FROM {{table}} AS m WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                        WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
                        ORDER BY m.id) AS head
                WHERE head.locked_until IS NULL OR head.locked_until <= @now)
       -- A head that holds nothing but waiting rows hides what is behind it: they have to be deferred.
    OR (SELECT COUNT(*)
          FROM (SELECT TOP (20000) m.id
                  FROM {{table}} AS m WITH (INDEX({{name}}_open), NOLOCK)
                 WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL) AS head) = 20000
    OR EXISTS (SELECT 1
                 FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_wake), NOLOCK)
                WHERE w.target_broker = @broker AND w.shard = shards.shard AND w.wake_at <= @now)
    OR EXISTS (SELECT 1
                 FROM {{table}} AS m WITH (INDEX({{name}}_scheduled), NOLOCK)
                WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.available_at IS NOT NULL AND m.available_at <= @now)
       -- A block that is back in the claim's way and done lets its followers through.
    OR EXISTS (SELECT 1
                 FROM (SELECT TOP (500) w.block_id
                         FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_wake), NOLOCK)
                        WHERE w.target_broker = @broker AND w.shard = shards.shard AND w.wake_at IS NULL
                        ORDER BY w.block_id) AS block
                 LEFT JOIN {{table}} AS m WITH (NOLOCK, FORCESEEK) ON m.id = block.block_id
                WHERE m.id IS NULL OR m.finished_at IS NOT NULL OR m.available_at IS NOT NULL))
 ORDER BY shards.shard;
