-- Lock those of the rows of {{list}}, which are below a low-water mark, that are ready.
-- @broker, @shard, @window, @sized: see window.sql
-- Plan: the rows by primary key, a probe of {{name}}_scheduled and one of {{name}}_blocks_wake.
SELECT {{include part_ready_columns}}
  FROM {{table}} FORCE INDEX (PRIMARY)
 WHERE id IN ({{list}}) AND target_broker = @broker AND queue = @shard AND finished_at IS NULL
   AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6))
 ORDER BY id
 LIMIT @window
   FOR UPDATE SKIP LOCKED
