-- Claim the first rows of a shard, up to one of them, all of which head.sql has found free.
-- Named parameters: broker, shard, last, worker, token, now, lease in microseconds, isolated (one row comes alone).
-- Plan: one range scan of {{name}}_open, in one pass.
UPDATE {{table}} INDEXED BY {{name}}_open
   SET status       = 'processing'
     , locked_by    = :worker
     , lock_token   = :token
     , locked_until = :now + :lease
     , isolated     = :isolated
 WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL AND id <= :last
   AND status IN ('pending', 'failed') AND coalesce(locked_until, 0) <= :now
