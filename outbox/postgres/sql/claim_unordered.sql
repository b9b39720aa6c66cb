-- Claim the first ready rows of a shard where order is off: locked rows are passed over and nothing waits for anything. Where another transaction may
-- have crashed with one of them, or they have too many bytes, nothing is taken, and the window is read by window.sql.
-- $1 broker, $2 shard, $3 limit, $4 worker, $5 token, $6 lease in microseconds,
-- $7 id below which nothing is open in the shard, $8 as of which version, $9 whether to look for the first open row,
-- $10 whether others of the process have claimed rows, $11 bytes of payload and headers,
-- $12 sessions in which these marks hold, $13 writers and $14 the id below which nothing is open while none of them has ended: see lowwater.go
-- Plan: one range scan of {{name}}_open, one TID scan for the update.
WITH known AS MATERIALIZED (
    SELECT now.version
         , set_config('fanout.session', now.session::text, false)::bigint AS session -- for as long as it lasts
         , CASE WHEN now.version = $8 AND now.session = ANY ($12::bigint[])
                THEN CASE WHEN cardinality($13::bigint[]) > 0
                           AND NOT EXISTS (SELECT FROM unnest($13::bigint[]) AS writer (number) WHERE pg_visible_in_snapshot(number::text::xid8, pg_current_snapshot()))
                          THEN $14::bigint ELSE $7 END
                ELSE -9223372036854775808 END AS floor
      FROM (SELECT coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) AS version
                 , coalesce(nullif(current_setting('fanout.session', true), '')::bigint
                         , (SELECT min(met) FROM unnest($12::bigint[]) AS met WHERE met IN ({{include part_living}})), {{include part_own_session}}) AS session) AS now
), win AS MATERIALIZED (
    SELECT ctid AS tid, id, crashes = 0 AND status <> 'processing' AS simple, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes
      FROM {{table}}
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL AND id >= (SELECT floor FROM known)
       AND (locked_until IS NULL OR locked_until <= statement_timestamp())
     ORDER BY id
     LIMIT $3
       FOR UPDATE SKIP LOCKED
), summary AS MATERIALIZED (
    SELECT count(*) AS seen
         , coalesce(max(id), 0) AS last
         , coalesce(bool_and(simple), true) AND coalesce(sum(bytes), 0) <= $11::bigint AS simple
      FROM win
), claimed AS (
    UPDATE {{table}} AS m
       SET status       = 'processing'
         , locked_by    = $4
         , lock_token   = $5
         , locked_until = (SELECT statement_timestamp() + $6::bigint * interval '1 microsecond') -- computed once
         , isolated     = NOT $10::boolean AND (SELECT seen = 1 FROM summary)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM win WHERE (SELECT simple FROM summary)))
    RETURNING m.id
)
SELECT false
     , seen
     , simple
     , CASE WHEN $9::boolean
            THEN (SELECT id
                    FROM {{table}}
                   WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL AND id >= (SELECT floor FROM known)
                   ORDER BY id
                   LIMIT 1)
            END
     , last
     , (SELECT version FROM known)
     , EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block)
       OR EXISTS (SELECT FROM (SELECT FROM {{table}} WHERE target_broker = $1 AND shard = $2 AND available_at <= statement_timestamp() ORDER BY target_broker, shard, available_at LIMIT 1) AS due)
     , CASE WHEN seen < $3 -- waiting rows that were read in vain
            THEN (SELECT count(*)
                    FROM (SELECT status, locked_until
                            FROM {{table}}
                           WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL AND id >= (SELECT floor FROM known)
                           ORDER BY id
                           LIMIT 20000) AS head
                   WHERE status <> 'processing' AND locked_until > statement_timestamp())
            ELSE 0 END
     , (SELECT session FROM known)
     , set_config('fanout.first', coalesce((SELECT min(id) FROM claimed), 1)::text, false)
     , set_config('fanout.last', last::text, false) || set_config('synchronous_commit', 'off', true)
  FROM summary
