-- Lock the first ready rows of a shard where order is off: locked rows are passed over and nothing waits for anything.
-- @broker, @shard, @window, @sized: see window.sql; @floor: a low-water mark, or a number below all ids
-- Plan: one range scan of {{name}}_queue, a probe of {{name}}_scheduled and one of {{name}}_blocks_wake.
SELECT {{include part_ready_columns}}
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL AND id >= @floor
   AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6))
 ORDER BY id
 LIMIT @window
   FOR UPDATE SKIP LOCKED
