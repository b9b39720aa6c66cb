-- Claim the chosen rows: where another transaction has changed some of them since the window was read, none is claimed; where it does so this very
-- moment, the others are, and the caller gives them back. It reads what was claimed by fetch.sql, after the commit.
-- $1 broker, $2 shard, $3 version, $4 message ids, $5 worker, $6 token, $7 lease in microseconds, $8 whether they are isolated,
-- $9 first id, $10 last id
-- It comes behind try_lock.sql, and takes none where another transaction has the shard: two transactions that took the same rows without it would lock
-- them in different orders, if one of them had seen older versions, and wait for each other in a circle.
-- Plan: one range scan of {{name}}_open, one TID scan for the update. There is no join, so that no wrong estimate can make it quadratic: the
-- message ids are a hash table, which IN is within a CASE. An id may be there twice, where an identity has begun anew.
WITH chosen AS MATERIALIZED (
    SELECT ctid AS tid
      FROM {{table}}
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL
       AND id BETWEEN $9 AND $10
       AND CASE WHEN message_id IN (SELECT unnest($4::uuid[])) THEN true ELSE false END
       AND current_setting('fanout.shard') = 'held'
       AND status IN ('pending', 'failed', 'processing')
       AND (locked_until IS NULL OR locked_until <= statement_timestamp())
     ORDER BY id
), claimed AS (
    UPDATE {{table}} AS m
       SET status       = 'processing'
         , locked_by    = $5
         , lock_token   = $6
         , locked_until = (SELECT statement_timestamp() + $7::bigint * interval '1 microsecond') -- computed once
         , attempts     = m.attempts + (m.status = 'processing' AND m.isolated AND m.attempts < 1048575)::int
         , crashes      = m.crashes + (m.status = 'processing' AND m.crashes < 1048575)::int
         , isolated     = $8
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM chosen WHERE (SELECT count(*) FROM chosen) = cardinality($4::uuid[])))
       AND NOT m.deferred -- all that an index has as its predicate would tempt the planner to walk it
       AND m.status IN ('pending', 'failed', 'processing')
       AND (m.locked_until IS NULL OR m.locked_until <= statement_timestamp())
       AND m.available_at IS NULL
       AND coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) = $3
    RETURNING m.id
)
SELECT set_config('fanout.first', coalesce(min(id), 1)::text, false)
     , set_config('fanout.last', coalesce(max(id), 0)::text, false)
  FROM claimed
