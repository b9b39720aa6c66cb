-- Choose what to claim from the head of the shard, keeping the order of each key. Runs inside BEGIN IMMEDIATE, which is
-- the shard's lock. Named parameters: broker, shard, window, limit, bytes (of payload), now.
-- Plan: one range scan of {{name}}_open; INDEXED BY, for "ORDER BY id" alone would tempt the planner to walk the table. Where
-- there are blocks or rows of low priority, a probe for each row of the window that has a key.
WITH shard AS MATERIALIZED (
    -- Does any key of the broker wait behind a block? Has the normal shard (0) a sibling of low priority (1) with work, or, for
    -- that one, from which row on has the normal shard?
    SELECT EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker) AS blocked
         , :shard = 0 AND EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_open
                                  WHERE target_broker = :broker AND shard = 1 AND finished_at IS NULL AND deferred = 0) AS mixed
         , CASE WHEN :shard = 1
                THEN (SELECT id FROM {{table}} INDEXED BY {{name}}_open
                       WHERE target_broker = :broker AND shard = 0 AND finished_at IS NULL AND deferred = 0
                       ORDER BY id
                       LIMIT 1)
                END AS ahead
), win AS MATERIALIZED (
    -- The first open rows in order, held ones included: of each key it sees, it sees every earlier open row of the shard.
    SELECT id, ordering_key
           -- An earlier row of the key stands outside of the window: behind a block, or in the shard of another priority.
         , CASE WHEN ordering_key IS NOT NULL AND (SELECT blocked FROM shard)
                THEN EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                              WHERE w.target_broker = :broker AND w.ordering_key = m.ordering_key AND w.block_id < m.id)
                ELSE 0 END AS behind
           -- 2 where the first such row of another priority waits for a time.
         , CASE WHEN ordering_key IS NULL THEN 0
                WHEN id > (SELECT ahead FROM shard) THEN 1
                WHEN (SELECT mixed FROM shard)
                THEN coalesce((SELECT 1 + (low.status <> 'processing' AND max(coalesce(low.locked_until, 0), coalesce(low.available_at, 0)) > :now)
                                 FROM {{table}} AS low INDEXED BY {{name}}_backfill
                                WHERE low.target_broker = :broker AND low.ordering_key = m.ordering_key AND low.id < m.id
                                  AND low.priority < 0 AND low.finished_at IS NULL
                                ORDER BY low.id
                                LIMIT 1), 0)
                ELSE 0 END AS outranked
         , CASE WHEN ordering_key IS NULL THEN id END AS loner -- a row without a key is a key of its own
         , status = 'processing' AS leased
         , crashes + (status = 'processing') AS suspicion
         , coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now AS ready
         , length(payload) AS bytes -- see head.sql
      FROM {{table}} AS m INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0
     ORDER BY id
     LIMIT :window
), judged AS MATERIALIZED (
    SELECT id, bytes
         , min(ready AND NOT behind AND outranked = 0) OVER so_far AS clear
         , max(leased AND NOT ready) OVER whole AS in_hand
         , max(behind OR outranked = 2 OR NOT leased AND NOT ready) OVER so_far AS waits
         , min(suspicion) OVER so_far AS lowest
         , max(suspicion) OVER so_far AS highest
      FROM win
    WINDOW so_far AS (PARTITION BY ordering_key, loner ORDER BY id ROWS UNBOUNDED PRECEDING)
         , whole AS (PARTITION BY ordering_key, loner)
), free AS (
    -- Without the followers of a row that must wait, and without keys that somebody else has claimed.
    SELECT id, bytes, lowest, highest FROM judged WHERE clear AND NOT in_hand
), lead AS (
    -- Rows whose lease ran out are claimed apart from the others, and fewer at a time after each crash, until the one
    -- that kills its process stands alone.
    SELECT lowest AS suspicion FROM free ORDER BY id LIMIT 1
), fit AS MATERIALIZED (
    SELECT id, bytes
      FROM free
     WHERE lowest = (SELECT suspicion FROM lead) AND highest = (SELECT suspicion FROM lead)
     ORDER BY id
     LIMIT coalesce((SELECT max(1, :limit >> min(suspicion, 30)) FROM lead), 0)
), chosen AS (
    -- The first of them that stay within the bytes, and one in any case.
    SELECT id
      FROM (SELECT id, sum(bytes) OVER so_far AS total, row_number() OVER so_far AS place
              FROM fit
            WINDOW so_far AS (ORDER BY id ROWS UNBOUNDED PRECEDING))
     WHERE total <= :bytes OR place = 1
)
SELECT (SELECT count(*) FROM win)
     , (SELECT count(*) FROM fit) > (SELECT count(*) FROM chosen)
     , (SELECT count(*) FROM judged WHERE waits)
     , (SELECT blocked FROM shard)
       -- Does the row ahead wait for a time, behind a block, or for an earlier row of low priority that waits for a time?
     , coalesce((SELECT m.status <> 'processing' AND max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) > :now
                        OR EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                                    WHERE w.target_broker = :broker AND w.ordering_key = m.ordering_key AND w.block_id < m.id)
                        OR coalesce((SELECT low.status <> 'processing' AND max(coalesce(low.locked_until, 0), coalesce(low.available_at, 0)) > :now
                                       FROM {{table}} AS low INDEXED BY {{name}}_backfill
                                      WHERE low.target_broker = :broker AND low.ordering_key = m.ordering_key AND low.id < m.id
                                        AND low.priority < 0 AND low.finished_at IS NULL
                                      ORDER BY low.id
                                      LIMIT 1), 0)
                   FROM {{table}} AS m
                  WHERE m.id = (SELECT ahead FROM shard)), 0)
       OR EXISTS (SELECT 1 FROM win WHERE outranked = 2)
     , coalesce((SELECT json_group_array(id) FROM chosen), '[]')
