-- Claim the head of a shard where it is plain: each row of the window is ready, none has been in the hands of somebody who died,
-- no key of the broker waits behind a block and the shard's sibling of low priority is empty. Then the rows can be taken as they
-- come, and claim_ordered.sql would take the same ones. Where the window is not plain, nothing is taken, and the claim is made
-- with that statement: for a few rows, what is spent on making such a large plan ready is more than what it does.
-- What was claimed is read by fetch.sql, after the commit.
-- $1 broker, $2 shard (not of low priority), $3 window and limit, $4 worker, $5 token, $6 lease in microseconds,
-- $7 id below which nothing is open in the shard, $8 the same of its sibling, $9 as of which count of reopenings,
-- $10 whether others of the process have claimed rows, $11 bytes of payload
-- Plan: one range scan of {{name}}_open for the window, one TID scan for the update.
WITH known AS MATERIALIZED (
    SELECT now.reopened
         , CASE WHEN now.reopened = $9 THEN $7 ELSE -9223372036854775808 END AS floor
         , CASE WHEN now.reopened = $9 THEN $8 ELSE -9223372036854775808 END AS sibling_floor
      FROM (SELECT coalesce((SELECT reopened FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) AS reopened) AS now
), win AS MATERIALIZED (
    SELECT ctid AS tid, id
         , octet_length(payload) AS bytes
         , status <> 'processing' AND crashes = 0
           AND (locked_until IS NULL OR locked_until <= statement_timestamp())
           AND (available_at IS NULL OR available_at <= statement_timestamp()) AS plain
      FROM {{table}}
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND id >= (SELECT floor FROM known)
       AND current_setting('fanout.shard') = 'held'
     ORDER BY id
     LIMIT $3
), summary AS MATERIALIZED (
    SELECT count(*) AS seen
         , min(id) AS first
         , max(id) AS last
         , coalesce(bool_and(plain), true) AND coalesce(sum(bytes), 0) <= $11::bigint
           AND NOT EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block)
           AND ($2 > 3 OR NOT EXISTS (SELECT FROM (SELECT FROM {{table}}
                                                    WHERE target_broker = $1 AND shard = $2 + 4 AND finished_at IS NULL AND NOT deferred
                                                      AND id >= (SELECT sibling_floor FROM known)
                                                    ORDER BY id
                                                    LIMIT 1) AS sibling)) AS plain
      FROM win
), claimed AS (
    UPDATE {{table}} AS m
       SET status       = 'processing'
         , locked_by    = $4
         , lock_token   = $5
         , locked_until = (SELECT statement_timestamp() + $6::bigint * interval '1 microsecond') -- computed once
         , isolated     = NOT $10::boolean AND (SELECT seen = 1 FROM summary)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM win WHERE (SELECT plain FROM summary)))
       AND m.status IN ('pending', 'failed')
       AND (m.locked_until IS NULL OR m.locked_until <= statement_timestamp())
    RETURNING m.id
)
SELECT current_setting('fanout.shard') = 'busy'
     , seen
     , false
     , 0
     , false
     , false
     , first
     , coalesce(last, 0)
     , (SELECT reopened FROM known)
     , 0
     , NULL::bigint
     , plain
     , set_config('fanout.first', coalesce(first, 1)::text, false)
     , set_config('fanout.last', coalesce(last, 0)::text, false)
       -- As in claim_ordered.sql: a row was changed under its hands.
     , 1 / ((SELECT count(*) FROM claimed) = CASE WHEN plain THEN seen ELSE 0 END)::int
  FROM summary
