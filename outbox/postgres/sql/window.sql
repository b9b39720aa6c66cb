-- Read the head of a shard for a decision: a row for each row of the window, or one alone where it is empty. It takes no lock; take.sql
-- tests whether what was read still holds.
-- $1 broker, $2 shard, $3 window, $4 unordered: only what is ready, $5 id below which nothing is open in the shard, $6 as of which version,
-- $7 sessions in which these marks hold, $8 writers and $9 the id below which nothing is open while none of them has ended: see lowwater.go
-- Plan: one range scan of {{name}}_open; where the broker has blocks, a probe of {{name}}_blocks_key for each row with a key.
WITH known AS MATERIALIZED (
    {{include part_known}}
), win AS MATERIALIZED (
    SELECT id
         , message_id
         , coalesce(ordering_key, '') AS key
         , status = 'processing' AS leased
         , coalesce(locked_until > statement_timestamp(), false) AS waits
         , crashes
         , octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes -- reads nothing that is kept out of line, nor unpacks it
         , CASE WHEN ordering_key IS NOT NULL AND NOT $4 AND (SELECT blocked FROM known)
                THEN (SELECT CASE WHEN w.block_id = m.id AND w.block_message_id <> m.message_id THEN greatest(m.id, -9223372036854775807) - 1 -- an id that is there twice
                                  ELSE w.block_id END
                        FROM {{table}}_key_blocks AS w WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = $1 AND w.shard + 0 = $2)
                END AS block_id
      FROM {{table}} AS m
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL AND id >= (SELECT floor FROM known)
       AND (NOT $4 OR coalesce(locked_until <= statement_timestamp(), true))
     ORDER BY id
     LIMIT $3
)
SELECT (SELECT version FROM known), (SELECT blocked FROM known), (SELECT session FROM known), id, key, leased, waits, crashes, bytes, block_id, message_id
  FROM win
 UNION ALL
SELECT (SELECT version FROM known), (SELECT blocked FROM known), (SELECT session FROM known), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
 WHERE NOT EXISTS (SELECT FROM win)
 ORDER BY id, block_id DESC NULLS LAST -- of rows with one id the block is the first
