-- Lock the first ready rows of a shard where order is off: locked rows are passed over and nothing waits for anything.
-- @broker, @shard, @window, @sized: see window.sql
-- Plan: one range scan of {{name}}_queue, a probe of {{name}}_blocks_wake.
SELECT id, status = 'processing', crashes, CASE WHEN @sized THEN LENGTH(payload) + COALESCE(LENGTH(headers), 0) ELSE 0 END
     , EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake) WHERE target_broker = @broker)
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL
   AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6)) AND (available_at IS NULL OR available_at <= UTC_TIMESTAMP(6))
 ORDER BY id
 LIMIT @window
   FOR UPDATE SKIP LOCKED
