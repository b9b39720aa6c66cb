-- Read the head of a shard for a decision: a row for each row of the window, or one alone where it is empty.
-- Named parameters: broker, shard, window, unordered (only what is ready), now.
-- Plan: one range scan of {{name}}_open; INDEXED BY, for "ORDER BY id" alone would tempt the planner to walk the table. Where
-- there are blocks, a probe of {{name}}_blocks_key for each row of the window that has a key.
WITH broker AS MATERIALIZED (
    SELECT EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker)
           OR EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_scheduled WHERE target_broker = :broker AND shard = :shard AND available_at IS NOT NULL AND available_at <= :now) AS blocked
), win AS MATERIALIZED (
    SELECT id, ordering_key, status = 'processing' AS leased, crashes
         , coalesce(locked_until, 0) > :now AS waits
         , length(payload) + coalesce(length(CAST(headers AS BLOB)), 0) AS bytes -- see head.sql
         , CASE WHEN ordering_key IS NOT NULL AND NOT :unordered AND (SELECT blocked FROM broker)
                THEN (SELECT w.block_id FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                       WHERE w.target_broker = :broker AND w.ordering_key = m.ordering_key AND w.shard = :shard)
                END AS block_id
      FROM {{table}} AS m INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
       AND (NOT :unordered OR coalesce(locked_until, 0) <= :now)
     ORDER BY id
     LIMIT :window
)
SELECT broker.blocked
     , win.id, coalesce(win.ordering_key, ''), win.leased, win.waits, win.crashes, win.bytes, win.block_id
  FROM broker
  LEFT JOIN win ON true
 ORDER BY win.id
