-- Claim the head of a shard where order is off: locked rows are passed over and nothing waits for anything. What was
-- claimed is read by fetch.sql, after the commit, which need not wait for the disk: see try_lock.sql.
-- $1 broker, $2 shard, $3 window, $4 limit, $5 worker, $6 token, $7 lease in microseconds,
-- $8 id below which nothing is open in the shard, $9 as of which count of reopenings, $10 whether to look for the first open row,
-- $11 whether others of the process have claimed rows, $12 bytes of payload
-- Plan: one range scan of {{name}}_open, one TID scan for the update.
WITH known AS MATERIALIZED (
    -- Nothing is open below this id, see lowwater.go; unless rows have come back since that was learned. Of those that this
    -- transaction has brought back itself, the lowest id is known.
    SELECT now.reopened, now.own, now.lowest
         , CASE WHEN now.reopened = $9 + now.own THEN least($8, now.lowest) ELSE -9223372036854775808 END AS floor
      FROM (SELECT coalesce((SELECT reopened FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) AS reopened
                 , coalesce(nullif(current_setting('fanout.own', true), '')::bigint, 0) AS own
                 , nullif(current_setting('fanout.from', true), '')::bigint AS lowest) AS now
), free AS MATERIALIZED (
    SELECT ctid AS tid, id, crashes + (status = 'processing')::int AS suspicion, octet_length(payload) AS bytes
      FROM {{table}}
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND id >= (SELECT floor FROM known)
       AND (locked_until IS NULL OR locked_until <= statement_timestamp())
       AND (available_at IS NULL OR available_at <= statement_timestamp())
     ORDER BY id
     LIMIT least($3::int, $4::int)
       FOR UPDATE SKIP LOCKED
), lead AS (
    -- As in claim_ordered.sql: suspects are claimed apart, and fewer at a time after each crash.
    SELECT suspicion FROM free ORDER BY id LIMIT 1
), fit AS (
    SELECT tid, id, bytes
      FROM free
     WHERE suspicion = (SELECT suspicion FROM lead)
     ORDER BY id
     LIMIT (SELECT greatest(1, $4::int >> least(suspicion, 30)) FROM lead)
), weight AS MATERIALIZED (
    SELECT coalesce(sum(bytes), 0) <= $12::bigint AS light FROM fit
), chosen AS (
    -- As in claim_ordered.sql: the first of them that stay within the bytes, and one in any case.
    SELECT tid FROM fit WHERE (SELECT light FROM weight)
     UNION ALL
    SELECT tid
      FROM (SELECT tid, sum(bytes) OVER so_far AS total, row_number() OVER so_far AS place
              FROM fit
             WHERE NOT (SELECT light FROM weight)
            WINDOW so_far AS (ORDER BY id ROWS UNBOUNDED PRECEDING)) AS heavy
     WHERE total <= $12::bigint OR place = 1
), claimed AS (
    UPDATE {{table}} AS m
       SET status       = 'processing'
         , locked_by    = $5
         , lock_token   = $6
         , locked_until = (SELECT statement_timestamp() + $7::bigint * interval '1 microsecond') -- computed once
         , attempts     = m.attempts + (m.status = 'processing' AND m.isolated)::int
         , crashes      = m.crashes + (m.status = 'processing')::int
         , isolated     = NOT $11::boolean AND (SELECT count(*) = 1 FROM chosen)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM chosen))
       AND m.status IN ('pending', 'failed', 'processing')
       AND (m.locked_until IS NULL OR m.locked_until <= statement_timestamp())
    RETURNING m.id
)
SELECT false
     , (SELECT count(*) FROM free)
     , (SELECT NOT light FROM weight) AND (SELECT count(*) FROM fit) > (SELECT count(*) FROM chosen)
     , CASE WHEN (SELECT count(*) FROM free) < least($3::int, $4::int) -- waiting rows that were read in vain
            THEN (SELECT count(*)
                    FROM (SELECT status, locked_until, available_at
                            FROM {{table}}
                           WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND id >= (SELECT floor FROM known)
                           ORDER BY id
                           LIMIT 20000) AS head
                   WHERE status <> 'processing' AND greatest(locked_until, available_at) > statement_timestamp())
            ELSE 0 END
     , EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block)
     , false
     , CASE WHEN $10::boolean
            THEN (SELECT id
                    FROM {{table}}
                   WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND id >= (SELECT floor FROM known)
                   ORDER BY id
                   LIMIT 1)
            END
     , (SELECT coalesce(max(id), 0) FROM free)
     , (SELECT reopened FROM known)
     , (SELECT own FROM known)
     , (SELECT lowest FROM known)
     , false
     , set_config('fanout.first', coalesce(min(id), 1)::text, false)
     , set_config('fanout.last', coalesce(max(id), 0)::text, false)
     , set_config('synchronous_commit', 'off', true)
  FROM claimed
