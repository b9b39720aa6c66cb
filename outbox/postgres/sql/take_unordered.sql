-- Claim the chosen rows of a shard where order is off. There is no lock to take; rows that another transaction has locked, or that have changed since the
-- window was read, are passed over, so that nothing waits for anything. What was claimed is read by fetch.sql, after the commit.
-- $1 broker, $2 shard, $3 message ids, $4 worker, $5 token, $6 lease in microseconds, $7 whether they are isolated, $8 first id, $9 last id
-- Plan: one range scan of {{name}}_open, one TID scan for the update. See take.sql for the message ids.
WITH chosen AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}}
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL
       AND id BETWEEN $8 AND $9
       AND CASE WHEN message_id IN (SELECT unnest($3::uuid[])) THEN true ELSE false END
     ORDER BY id
       FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE {{table}} AS m
       SET status       = 'processing'
         , locked_by    = $4
         , lock_token   = $5
         , locked_until = (SELECT statement_timestamp() + $6::bigint * interval '1 microsecond') -- computed once
         , attempts     = m.attempts + (m.status = 'processing' AND m.isolated AND m.attempts < 1048575)::int
         , crashes      = m.crashes + (m.status = 'processing' AND m.crashes < 1048575)::int
         , isolated     = $7
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM chosen))
       AND NOT m.deferred
       AND m.status IN ('pending', 'failed', 'processing')
       AND (m.locked_until IS NULL OR m.locked_until <= statement_timestamp())
       AND m.available_at IS NULL
    RETURNING m.id
)
SELECT set_config('fanout.first', coalesce(min(id), 1)::text, false)
     , set_config('fanout.last', coalesce(max(id), 0)::text, false)
  FROM claimed
