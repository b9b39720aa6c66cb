-- Extend a lease that is still ours. Named parameters: broker, shard, token, first, last, now, lease in microseconds.
UPDATE {{table}} INDEXED BY {{name}}_open
   SET locked_until = :now + :lease
 WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
   AND id BETWEEN :first AND :last AND lock_token = :token AND status = 'processing'
