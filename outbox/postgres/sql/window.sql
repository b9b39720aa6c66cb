-- Read the head of a shard for a decision: a row for each row of the window, or one alone where it is empty. It takes no lock; take.sql
-- tests whether what was read still holds.
-- $1 broker, $2 shard, $3 window, $4 unordered: only what is ready,
-- $5 id below which nothing is open in the shard, $6 the same of its sibling, $7 as of which version
-- Plan: one range scan of {{name}}_open; where the broker has blocks, or the sibling of low priority has rows, a probe for each row with a key.
WITH known AS MATERIALIZED (
    SELECT now.version
         , CASE WHEN now.version = $7 THEN $5 ELSE -9223372036854775808 END AS floor
         , CASE WHEN now.version = $7 THEN $6 ELSE -9223372036854775808 END AS sibling_floor
      FROM (SELECT coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) AS version) AS now
), shard AS MATERIALIZED (
    -- Has the broker blocks? Has the shard's sibling of low priority rows, or, for that one, from which row on has the shard itself?
    -- (Each in the order of its index, which a planner that knows of no rows has no other reason to choose.)
    SELECT EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block) AS blocked
         , $2 < 4 AND NOT $4::boolean
           AND EXISTS (SELECT FROM (SELECT FROM {{table}}
                                     WHERE target_broker = $1 AND shard = $2 + 4 AND finished_at IS NULL AND NOT deferred
                                       AND id >= (SELECT sibling_floor FROM known)
                                     ORDER BY id
                                     LIMIT 1) AS sibling) AS mixed
         , ahead.id AS ahead
         , coalesce(ahead.waits, false) AS ahead_waits
      FROM (SELECT) AS one
      LEFT JOIN LATERAL (SELECT head.id
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
                          WHERE $2 BETWEEN 4 AND 7 AND NOT $4::boolean
                            AND head.target_broker = $1 AND head.shard = $2 - 4 AND head.finished_at IS NULL AND NOT head.deferred
                            AND head.id >= (SELECT sibling_floor FROM known)
                          ORDER BY head.id
                          LIMIT 1) AS ahead ON true
), win AS MATERIALIZED (
    SELECT id
         , message_id
         , coalesce(ordering_key, '') AS key
         , status = 'processing' AS leased
         , coalesce(greatest(locked_until, available_at) > statement_timestamp(), false) AS waits
         , crashes
         , octet_length(payload) AS bytes -- reads no payload that is kept out of line, nor unpacks one
         , CASE WHEN ordering_key IS NOT NULL AND NOT $4 AND (SELECT blocked FROM shard)
                THEN (SELECT CASE WHEN w.block_id = m.id AND w.block_message_id <> m.message_id THEN greatest(m.id, -9223372036854775807) - 1 -- an id that is there twice
                                  ELSE w.block_id END
                        FROM {{table}}_key_blocks AS w WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = $1)
                END AS block_id
           -- The first earlier row of the key in the backfill shard: 1, or 2 where it waits for a time.
         , CASE WHEN ordering_key IS NOT NULL AND (SELECT mixed FROM shard)
                THEN coalesce((SELECT CASE WHEN low.status <> 'processing'
                                            AND greatest(low.locked_until, low.available_at) > statement_timestamp()
                                           THEN 2 ELSE 1 END
                                 FROM {{table}} AS low
                                WHERE low.target_broker = $1 AND hashtextextended(low.ordering_key, 0) = hashtextextended(m.ordering_key, 0)
                                  AND low.ordering_key = m.ordering_key AND low.id < m.id
                                  AND low.priority < 0 AND low.finished_at IS NULL
                                ORDER BY low.id
                                LIMIT 1), 0)
                ELSE 0 END AS low
      FROM {{table}} AS m
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND id >= (SELECT floor FROM known)
       AND (NOT $4 OR coalesce(greatest(locked_until, available_at) <= statement_timestamp(), true))
     ORDER BY id
     LIMIT $3
)
SELECT (SELECT version FROM known), (SELECT blocked FROM shard), (SELECT ahead FROM shard), (SELECT ahead_waits FROM shard)
     , id, key, leased, waits, crashes, bytes, block_id, low, message_id
  FROM win
 UNION ALL
SELECT (SELECT version FROM known), (SELECT blocked FROM shard), (SELECT ahead FROM shard), (SELECT ahead_waits FROM shard)
     , NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
 WHERE NOT EXISTS (SELECT FROM win)
 ORDER BY id, block_id DESC NULLS LAST -- of rows with one id the block is the first
