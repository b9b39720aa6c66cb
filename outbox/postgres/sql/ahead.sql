-- Look past what cannot be claimed at the head of a shard: of its first open rows those that can go, from the first of them on, with as many rows
-- behind it as a window can have. What waits, or is leased, is passed over, and of each key all that is behind it or behind the key's block; of a
-- key that has a leased row, everything. A decision about the whole head would take none of these either. It takes no lock; take.sql tests whether what was read still holds.
-- $1 broker, $2 shard, $3 window, $4 rows to look at, $5 id below which nothing is open in the shard, $6 as of which version,
-- $7 sessions in which these marks hold, $8 writers and $9 the id below which nothing is open while none of them has ended: see lowwater.go,
-- $10 rows behind the first one
-- Plan: one range scan of {{name}}_open, one of {{name}}_blocks_wake; the rows, their blocks and what waits of their keys are joined by hash. Where the
-- shard has many blocks, a probe of {{name}}_blocks_key for each row with a key that does not wait: to read them all would take longer than the look.
WITH known AS MATERIALIZED (
    {{include part_known}}
), block AS MATERIALIZED (
    SELECT ordering_key, block_id, block_message_id FROM {{table}}_key_blocks WHERE target_broker = $1 AND shard = $2 AND ordering_key IS NOT NULL LIMIT 10001
), near_blocks AS MATERIALIZED (
    SELECT count(*) <= 10000 AS blocks FROM block
), head AS MATERIALIZED (
    SELECT place, id, message_id, m.ordering_key, leased, waits, crashes, bytes
      FROM (SELECT row_number() OVER (ORDER BY id) AS place, *
              FROM (SELECT id, message_id, ordering_key, crashes
                         , status = 'processing' AS leased
                         , coalesce(locked_until > statement_timestamp(), false) AS waits
                         , octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes
                      FROM {{table}}
                     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL AND id >= (SELECT floor FROM known)
                     ORDER BY id
                     LIMIT $4) AS m) AS m
      LEFT JOIN block USING (ordering_key)
     WHERE CASE WHEN waits OR m.ordering_key IS NULL THEN NOT waits OR m.ordering_key IS NOT NULL
                WHEN block_id IS NOT NULL OR (SELECT blocks FROM near_blocks) THEN block_id IS NULL OR block_id > id OR block_id = id AND block_message_id = message_id
                ELSE coalesce((SELECT w.block_id > m.id OR w.block_id = m.id AND w.block_message_id = m.message_id
                                 FROM {{table}}_key_blocks AS w WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = $1 AND w.shard + 0 = $2), true) END
), held AS MATERIALIZED (
    SELECT ordering_key, CASE WHEN bool_or(leased) THEN -9223372036854775808 ELSE min(id) END AS first_id
      FROM head
     WHERE waits
     GROUP BY ordering_key
), free AS MATERIALIZED (
    SELECT head.*
      FROM head
      LEFT JOIN held USING (ordering_key)
     WHERE NOT waits AND (first_id IS NULL OR first_id > id)
), win AS MATERIALIZED (
    SELECT * FROM free WHERE place < (SELECT min(place) FROM free) + $10 ORDER BY id LIMIT $3
)
SELECT (SELECT version FROM known), (SELECT blocked FROM known), (SELECT session FROM known), id, coalesce(ordering_key, ''), leased, waits, crashes, bytes, NULL::bigint, message_id
  FROM win
 UNION ALL
SELECT (SELECT version FROM known), (SELECT blocked FROM known), (SELECT session FROM known), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
 WHERE NOT EXISTS (SELECT FROM win)
 ORDER BY id
