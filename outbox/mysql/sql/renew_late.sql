-- Is a lease over that is still ours? @broker, @shard, @token (hex digits), @first, @last
-- Plan: one range scan of {{name}}_queue.
SELECT COUNT(*)
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL AND id BETWEEN @first AND @last
   AND lock_token = UNHEX(@token) AND status = 'processing' AND locked_until <= UTC_TIMESTAMP(6)
