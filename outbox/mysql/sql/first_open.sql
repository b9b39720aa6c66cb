-- The version of a shard, and its first open row in a range of ids. @broker, @shard, @floor, @horizon
-- Plan: one range scan of {{name}}_queue; the shard by primary key.
SELECT (SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4)
     , (SELECT id
          FROM {{table}} FORCE INDEX ({{name}}_queue)
         WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL AND id >= @floor AND id < @horizon
         ORDER BY id
         LIMIT 1)
