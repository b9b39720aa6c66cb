-- Claim the head of a shard, keeping the order of each key. What was claimed is read by fetch.sql, after the commit.
-- $1 broker, $2 shard, $3 window, $4 limit, $5 worker, $6 token, $7 lease in microseconds,
-- $8 id below which nothing is open in the shard, $9 the same of its sibling, $10 as of which count of reopenings,
-- $11 whether others of the process have claimed rows, $12 bytes of payload
-- Plan: one range scan of {{name}}_open for the window, one TID scan for the update. Only where something in the window must
-- wait or may have killed a process, one sort of the window by key; where keys wait, the block of each row's key by
-- {{name}}_blocks_key.
-- Only where the window has more bytes than that, a running sum of those that fit. octet_length reads no payload that is kept
-- out of line, nor unpacks one: its length stands in the row.
-- There is no join, so that no wrong estimate can make the choice quadratic.
WITH known AS MATERIALIZED (
    -- Nothing is open below this id, see lowwater.go; unless rows have come back since that was learned. Of those that this
    -- transaction has brought back itself, the lowest id is known.
    SELECT now.reopened, now.own, now.lowest
         , CASE WHEN now.reopened = $10 + now.own THEN least($8, now.lowest) ELSE -9223372036854775808 END AS floor
         , CASE WHEN now.reopened = $10 + now.own THEN least($9, now.lowest) ELSE -9223372036854775808 END AS sibling_floor
      FROM (SELECT coalesce((SELECT reopened FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) AS reopened
                 , coalesce(nullif(current_setting('fanout.own', true), '')::bigint, 0) AS own
                 , nullif(current_setting('fanout.from', true), '')::bigint AS lowest) AS now
), shard AS MATERIALIZED (
    -- Does any key of the broker wait behind a block? Has the shard's sibling of low priority work, or, for that one, from
    -- which row on has the shard itself? (Each in the order of its index, which a planner that knows of no rows has no other
    -- reason to choose.)
    SELECT EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block) AS blocked
         , $2 < 4 AND EXISTS (SELECT FROM (SELECT FROM {{table}}
                                            WHERE target_broker = $1 AND shard = $2 + 4 AND finished_at IS NULL AND NOT deferred
                                              AND id >= (SELECT sibling_floor FROM known)
                                            ORDER BY id
                                            LIMIT 1) AS sibling) AS mixed
         , ahead.id AS ahead
         , coalesce(ahead.waits, false) AS ahead_waits
      FROM (SELECT) AS one
      LEFT JOIN LATERAL (SELECT head.id
                                -- For a time, behind a block, or for an earlier row of low priority that waits for a time.
                              , head.status <> 'processing' AND greatest(head.locked_until, head.available_at) > statement_timestamp()
                                OR EXISTS (SELECT FROM {{table}}_key_blocks AS w
                                            WHERE w.ordering_key = head.ordering_key AND w.target_broker || '' = $1 AND w.block_id < head.id)
                                OR EXISTS (SELECT FROM (SELECT status, locked_until, available_at
                                                          FROM {{table}} AS low
                                                         WHERE low.target_broker = $1 AND hashtextextended(low.ordering_key, 0) = hashtextextended(head.ordering_key, 0)
                                                           AND low.ordering_key = head.ordering_key
                                                           AND low.id < head.id AND low.priority < 0 AND low.finished_at IS NULL
                                                         ORDER BY low.id
                                                         LIMIT 1) AS first
                                            WHERE status <> 'processing'
                                              AND greatest(locked_until, available_at) > statement_timestamp()) AS waits
                           FROM {{table}} AS head
                          WHERE $2 BETWEEN 4 AND 7
                            AND head.target_broker = $1 AND head.shard = $2 - 4 AND head.finished_at IS NULL AND NOT head.deferred
                            AND head.id >= (SELECT sibling_floor FROM known)
                          ORDER BY head.id
                          LIMIT 1) AS ahead ON true
), win AS MATERIALIZED (
    -- The first open rows in order, held ones included: of each key it sees, it sees every earlier open row.
    SELECT ctid AS tid, id
         , ordering_key COLLATE "C" AS key
           -- An earlier row of the key stands outside of the window: behind a block, or in the shard of another priority.
         , ordering_key IS NOT NULL
           AND CASE WHEN (SELECT blocked FROM shard)
                    THEN EXISTS (SELECT FROM {{table}}_key_blocks AS w
                                  WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = $1 AND w.block_id < m.id)
                    ELSE false END AS to_defer
           -- 2 where the first such row of another priority waits for a time.
         , CASE WHEN ordering_key IS NULL THEN 0
                WHEN id > (SELECT ahead FROM shard) THEN 1
                WHEN (SELECT mixed FROM shard)
                THEN coalesce((SELECT CASE WHEN low.status <> 'processing'
                                            AND greatest(low.locked_until, low.available_at) > statement_timestamp()
                                           THEN 2 ELSE 1 END
                                 FROM {{table}} AS low
                                WHERE low.target_broker = $1 AND hashtextextended(low.ordering_key, 0) = hashtextextended(m.ordering_key, 0)
                                  AND low.ordering_key = m.ordering_key AND low.id < m.id
                                  AND low.priority < 0 AND low.finished_at IS NULL
                                ORDER BY low.id
                                LIMIT 1), 0)
                ELSE 0 END AS outranked
         , CASE WHEN ordering_key IS NULL THEN id END AS loner -- a row without a key is a key of its own
         , status = 'processing' AS leased
         , crashes + (status = 'processing')::int AS suspicion
         , (locked_until IS NULL OR locked_until <= statement_timestamp())
           AND (available_at IS NULL OR available_at <= statement_timestamp()) AS ready
         , octet_length(payload) AS bytes
      FROM {{table}} AS m
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND id >= (SELECT floor FROM known)
       AND current_setting('fanout.shard') = 'held'
     ORDER BY id
     LIMIT $3
), summary AS MATERIALIZED (
    -- A window is plain where each row is ready, none waits for another one, and all are equally suspect: then its rows are
    -- taken as they come, and what judges them key by key below is not executed.
    SELECT count(*) AS seen
         , min(id) AS first
         , coalesce(max(id), 0) AS last
         , coalesce(max(outranked), 0) = 2 AS held_back
         , min(suspicion) AS suspicion
         , coalesce(sum(bytes), 0) <= $12::bigint AS light
         , coalesce(bool_and(ready AND NOT to_defer AND outranked = 0), true)
           AND coalesce(min(suspicion) = max(suspicion), true) AS plain
      FROM win
), judged AS MATERIALIZED (
    SELECT tid, id, bytes
         , bool_and(ready AND NOT to_defer AND outranked = 0) OVER so_far AS clear
         , bool_or(leased AND NOT ready) OVER whole AS in_hand
         , bool_or(to_defer OR outranked = 2 OR NOT leased AND NOT ready) OVER so_far AS waits
         , min(suspicion) OVER so_far AS lowest
         , max(suspicion) OVER so_far AS highest
      FROM win
     WHERE NOT (SELECT plain FROM summary)
    WINDOW so_far AS (PARTITION BY key, loner ORDER BY id ROWS UNBOUNDED PRECEDING)
         , whole AS (PARTITION BY key, loner)
), free AS (
    -- Without the followers of a row that must wait, and without keys that somebody else has claimed.
    SELECT tid, id, bytes, lowest, highest FROM judged WHERE clear AND NOT in_hand
), lead AS (
    -- Rows whose lease ran out are claimed apart from the others, and fewer at a time after each crash, until the one
    -- that kills its process stands alone.
    SELECT CASE WHEN plain THEN suspicion ELSE (SELECT lowest FROM free ORDER BY id LIMIT 1) END AS suspicion FROM summary
), fit AS (
    SELECT tid, id, bytes
      FROM (SELECT tid, id, bytes FROM win WHERE (SELECT plain FROM summary)
             UNION ALL
            SELECT tid, id, bytes FROM free WHERE lowest = (SELECT suspicion FROM lead) AND highest = (SELECT suspicion FROM lead)) AS candidate
     ORDER BY id
     LIMIT (SELECT greatest(1, $4::int >> least(suspicion, 30)) FROM lead)
), chosen AS (
    -- The first of them that stay within the bytes, and one in any case.
    SELECT tid FROM fit WHERE (SELECT light FROM summary)
     UNION ALL
    SELECT tid
      FROM (SELECT tid, sum(bytes) OVER so_far AS total, row_number() OVER so_far AS place
              FROM fit
             WHERE NOT (SELECT light FROM summary)
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
SELECT current_setting('fanout.shard') = 'busy'
     , (SELECT seen FROM summary)
     , (SELECT NOT light FROM summary) AND (SELECT count(*) FROM fit) > (SELECT count(*) FROM chosen)
     , (SELECT count(*) FROM judged WHERE waits)
     , (SELECT blocked FROM shard)
     , (SELECT ahead_waits FROM shard) OR (SELECT held_back FROM summary)
     , (SELECT first FROM summary)
     , (SELECT last FROM summary)
     , (SELECT reopened FROM known)
     , (SELECT own FROM known)
     , (SELECT lowest FROM known)
       -- Whether claim_plain.sql would have taken it.
     , (SELECT plain AND light AND coalesce(suspicion, 0) = 0 FROM summary) AND NOT (SELECT blocked OR mixed FROM shard)
     , set_config('fanout.first', coalesce(min(id), 1)::text, false)
     , set_config('fanout.last', coalesce(max(id), 0)::text, false)
       -- A row that somebody changed meanwhile without the shard's lock was passed over, and the rows behind it must not go
       -- out before it: break the claim off (22012, division by zero) and make it anew.
     , 1 / (count(*) = (SELECT count(*) FROM chosen))::int
  FROM claimed
