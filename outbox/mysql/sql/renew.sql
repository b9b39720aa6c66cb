-- Extend a lease that is still ours. Under the shard's lock, so that no window sees half of it. One that was over is counted as a change:
-- another transaction may have decided about the rows of its keys. @broker, @shard, @token (hex digits), @first, @last, @lease in microseconds
-- Plan: one range scan of {{name}}_queue.
{{giving way}} UPDATE {{table}} FORCE INDEX ({{name}}_queue)
   SET locked_until = UTC_TIMESTAMP(6) + INTERVAL @lease MICROSECOND
 WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL AND id BETWEEN @first AND @last
   AND lock_token = UNHEX(@token) AND status = 'processing'
