-- Choose what to take out of the claim's way at the head of a shard: rows in backoff or scheduled for later, and whatever
-- stands behind them in their key. Rows in somebody's hands stay: they are soon done.
-- Named parameters: broker, shard, window, unordered (every row waits alone), now.
-- Plan: one range scan of {{name}}_open, a probe of {{name}}_blocks_key for each row with a key where there are blocks.
WITH shard AS MATERIALIZED (
    SELECT NOT :unordered AND EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker) AS blocked
), win AS MATERIALIZED (
    SELECT id
         , CASE WHEN NOT :unordered THEN ordering_key END AS key
         , CASE WHEN :unordered OR ordering_key IS NULL THEN id END AS loner
         , status = 'processing' AS leased
         , max(coalesce(locked_until, 0), coalesce(available_at, 0)) > :now AS later
           -- The key's block, where it has one.
         , CASE WHEN ordering_key IS NOT NULL AND (SELECT blocked FROM shard)
                THEN (SELECT w.block_id FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                       WHERE w.target_broker = :broker AND w.ordering_key = m.ordering_key)
                END AS block_id
      FROM {{table}} AS m INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0
     ORDER BY id
     LIMIT :window
), judged AS (
    -- The first row of each key that must wait becomes its block, unless it has one.
    SELECT id, leased, block_id
         , min(CASE WHEN NOT leased AND later AND (block_id IS NULL OR block_id = id) THEN id END) OVER (PARTITION BY key, loner) AS first
      FROM win
)
SELECT json_group_array(id) FILTER (WHERE id = first)
     , json_group_array(id) FILTER (WHERE NOT leased AND (id > block_id OR id >= first)) -- behind a block of before, or one of these
  FROM judged
