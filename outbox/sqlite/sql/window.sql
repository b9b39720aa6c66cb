-- Read the head of a shard for a decision: a row for each row of the window, or one alone where it is empty.
-- Named parameters: broker, shard, window, unordered (only what is ready), now.
-- Plan: one range scan of {{name}}_open; INDEXED BY, for "ORDER BY id" alone would tempt the planner to walk the table. Where
-- there are blocks or rows of low priority, a probe for each row of the window that has a key.
WITH shard AS MATERIALIZED (
    -- Does any key of the broker wait behind a block? Has the normal shard (0) a sibling of low priority (1) with work, or, for
    -- that one, from which row on has the normal shard?
    SELECT EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker) AS blocked
         , :shard = 0 AND NOT :unordered AND EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_open
                                                      WHERE target_broker = :broker AND shard = 1 AND finished_at IS NULL AND deferred = 0) AS mixed
         , CASE WHEN :shard = 1 AND NOT :unordered
                THEN (SELECT id FROM {{table}} INDEXED BY {{name}}_open
                       WHERE target_broker = :broker AND shard = 0 AND finished_at IS NULL AND deferred = 0
                       ORDER BY id
                       LIMIT 1)
                END AS ahead
), win AS MATERIALIZED (
    SELECT id, ordering_key, status = 'processing' AS leased, crashes
         , max(coalesce(locked_until, 0), coalesce(available_at, 0)) > :now AS waits
         , length(payload) AS bytes -- see head.sql
         , CASE WHEN ordering_key IS NOT NULL AND NOT :unordered AND (SELECT blocked FROM shard)
                THEN (SELECT w.block_id FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                       WHERE w.target_broker = :broker AND w.ordering_key = m.ordering_key)
                END AS block_id
           -- The first earlier row of the key in the shard of low priority: 1, or 2 where it waits for a time.
         , CASE WHEN ordering_key IS NOT NULL AND (SELECT mixed FROM shard)
                THEN coalesce((SELECT 1 + (low.status <> 'processing' AND max(coalesce(low.locked_until, 0), coalesce(low.available_at, 0)) > :now)
                                 FROM {{table}} AS low INDEXED BY {{name}}_backfill
                                WHERE low.target_broker = :broker AND low.ordering_key = m.ordering_key AND low.id < m.id
                                  AND low.priority < 0 AND low.finished_at IS NULL
                                ORDER BY low.id
                                LIMIT 1), 0)
                ELSE 0 END AS low
      FROM {{table}} AS m INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0
       AND (NOT :unordered OR coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now)
     ORDER BY id
     LIMIT :window
)
SELECT shard.blocked
     , shard.ahead
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
                  WHERE m.id = shard.ahead), 0)
     , win.id, coalesce(win.ordering_key, ''), win.leased, win.waits, win.crashes, win.bytes, win.block_id, win.low
  FROM shard
  LEFT JOIN win ON true
 ORDER BY win.id
