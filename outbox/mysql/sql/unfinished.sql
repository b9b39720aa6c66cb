-- The first rows of a shard in a range of ids that are open, committed or not: the transaction reads what is there.
-- @broker, @shard, @floor, @horizon, @most
-- Plan: one range scan of {{name}}_queue, whose entries have all that is needed.
SELECT id
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL AND id >= @floor AND id < @horizon
 ORDER BY id
 LIMIT @most
