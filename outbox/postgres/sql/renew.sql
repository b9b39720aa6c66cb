-- Extend a lease that is still ours. Runs under the shard's lock, so that no claim sees half of it.
-- $1 broker, $2 shard, $3 token, $4 first id, $5 last id, $6 lease in microseconds
UPDATE {{table}}
   SET locked_until = statement_timestamp() + $6::bigint * interval '1 microsecond'
 WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred
   AND id BETWEEN $4 AND $5
   AND lock_token = $3 AND status = 'processing'
