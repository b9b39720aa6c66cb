-- Extend a lease that is still ours. One that was over is counted as a change: another transaction may have decided about the rows of its keys.
-- $1 broker, $2 shard, $3 token, $4 first id, $5 last id, $6 lease in microseconds
-- Plan: two range scans of {{name}}_open.
WITH late AS (
    INSERT INTO {{table}}_shards AS l (target_broker, shard, version)
    SELECT $1, $2 % 4, 1
     WHERE EXISTS (SELECT
                     FROM {{table}}
                    WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL AND id BETWEEN $4 AND $5
                      AND lock_token = $3 AND status = 'processing' AND locked_until <= statement_timestamp())
        ON CONFLICT (target_broker, shard) DO UPDATE SET version = l.version + 1
)
UPDATE {{table}}
   SET locked_until = statement_timestamp() + $6::bigint * interval '1 microsecond'
 WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL
   AND id BETWEEN $4 AND $5
   AND lock_token = $3 AND status = 'processing'
