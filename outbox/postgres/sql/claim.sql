-- Claim the head of a shard where each row of the window can be taken unchanged: it is ready, no relay has crashed with it, and no block
-- of its key stands before it. Where that is not so, nothing is taken, and the window is read by window.sql for a decision row by row, which
-- would take the same rows here.
-- A row that another transaction changes at this very moment is passed over, and the rows behind it must not go out before it: the caller
-- counts what it got, and gives it back where a row is missing. (An error would do so here, and fill the server's log.)
-- What was claimed is read by fetch.sql, after the commit; but where there are few rows, the answer has them: it fits into buffers, so that
-- a process that is slow to read it does not keep the lock.
-- $1 broker, $2 shard, $3 window and limit, $4 worker, $5 token, $6 lease in microseconds,
-- $7 id below which nothing is open in the shard, $8 as of which version,
-- $9 whether others of the process have claimed rows, $10 bytes of payload and headers, $11 whether few rows are expected,
-- $12 sessions in which these marks hold, $13 writers and $14 the id below which nothing is open while none of them has ended: see lowwater.go
-- Plan: one range scan of {{name}}_open for the window, one TID scan for the update; where the broker has blocks, a probe of
-- {{name}}_blocks_key for each row with a key.
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
), broker AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block) AS blocked
         , EXISTS (SELECT FROM (SELECT FROM {{table}} WHERE target_broker = $1 AND shard = $2 AND available_at <= statement_timestamp() ORDER BY target_broker, shard, available_at LIMIT 1) AS due) AS due
), win AS MATERIALIZED (
    SELECT ctid AS tid, id
         , octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes
         , status <> 'processing' AND crashes = 0
           AND (locked_until IS NULL OR locked_until <= statement_timestamp())
           AND CASE WHEN ordering_key IS NOT NULL AND (SELECT blocked FROM broker)
                    THEN NOT EXISTS (SELECT FROM {{table}}_key_blocks AS w
                                      WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = $1 AND w.shard + 0 = $2
                                        AND w.block_id <= m.id AND w.block_message_id <> m.message_id)
                    ELSE true END AS simple
      FROM {{table}} AS m
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL AND id >= (SELECT floor FROM known)
       AND current_setting('fanout.shard') = 'held'
     ORDER BY id
     LIMIT $3
), summary AS MATERIALIZED (
    SELECT count(*) AS seen
         , min(id) AS first
         , max(id) AS last
         , $11::boolean AND count(*) <= 16 AND sum(bytes) <= 32768 AS few
         , coalesce(bool_and(simple), true) AND coalesce(sum(bytes), 0) <= $10::bigint AS simple
      FROM win
), claimed AS (
    UPDATE {{table}} AS m
       SET status       = 'processing'
         , locked_by    = $4
         , lock_token   = $5
         , locked_until = (SELECT statement_timestamp() + $6::bigint * interval '1 microsecond') -- computed once
         , isolated     = NOT $9::boolean AND (SELECT seen = 1 FROM summary)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM win WHERE (SELECT simple FROM summary)))
       AND m.status IN ('pending', 'failed')
       AND (m.locked_until IS NULL OR m.locked_until <= statement_timestamp())
       AND m.available_at IS NULL
    RETURNING m.id, CASE WHEN (SELECT few FROM summary) THEN m END AS message
)
SELECT current_setting('fanout.shard') = 'busy'
     , seen
     , simple
     , first
     , coalesce(last, 0)
     , (SELECT version FROM known)
     , (SELECT blocked OR due FROM broker)
     , 0
     , (SELECT session FROM known)
     , set_config('fanout.first', coalesce(first, 1)::text, false)
     , set_config('fanout.last', coalesce(last, 0)::text, false)
     , id, (message).message_id, (message).stream, (message).type, coalesce((message).ordering_key, ''), (message).priority, (message).content_type
     , (message).payload, coalesce((message).headers, ''), coalesce((message).correlation_id, ''), (message).attempts, (message).crashes
     , CASE WHEN isfinite((message).created_at) THEN (message).created_at ELSE statement_timestamp() END
     , CASE WHEN (message).expires_at <= statement_timestamp() THEN -1
            WHEN (message).expires_at < statement_timestamp() + interval '10 years'
            THEN extract(epoch FROM (message).expires_at - statement_timestamp()) * 1000000 ELSE 0 END::bigint
     , NULL::integer -- few rows have small payloads
  FROM summary
  LEFT JOIN claimed ON few
 ORDER BY id
