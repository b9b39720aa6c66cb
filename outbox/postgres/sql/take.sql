-- Claim the chosen rows, all of them or none: what somebody has changed since the window was read breaks the claim off (22012, division by
-- zero). What was claimed is read by fetch.sql, after the commit.
-- $1 broker, $2 shard, $3 version, $4 ids, $5 worker, $6 token, $7 lease in microseconds, $8 whether they are isolated,
-- $9 whether each of them must be taken
-- Plan: a probe of {{name}}_open for each id.
WITH claimed AS (
    UPDATE {{table}} AS m
       SET status       = 'processing'
         , locked_by    = $5
         , lock_token   = $6
         , locked_until = (SELECT statement_timestamp() + $7::bigint * interval '1 microsecond') -- computed once
         , attempts     = m.attempts + (m.status = 'processing' AND m.isolated)::int
         , crashes      = m.crashes + (m.status = 'processing')::int
         , isolated     = $8
     WHERE m.target_broker = $1 AND m.shard = $2 AND m.finished_at IS NULL AND NOT m.deferred AND m.id = ANY ($4::bigint[])
       AND m.status IN ('pending', 'failed', 'processing')
       AND (m.locked_until IS NULL OR m.locked_until <= statement_timestamp())
       AND (m.available_at IS NULL OR m.available_at <= statement_timestamp())
       AND coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) = $3
    RETURNING m.id
)
SELECT 1 / (NOT $9::boolean OR count(*) = cardinality($4::bigint[]))::int
     , set_config('fanout.first', coalesce(min(id), 1)::text, false)
     , set_config('fanout.last', coalesce(max(id), 0)::text, false)
  FROM claimed
