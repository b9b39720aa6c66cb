-- Take what waits at the head of a shard out of the claim's way: rows in backoff or scheduled for later, and whatever stands
-- behind them in their key. Rows in somebody's hands stay: they are soon done. Runs under the shard's lock.
-- $1 broker, $2 shard, $3 how many open rows to look at, $4 unordered: every row waits alone,
-- $5 id below which nothing is open in the shard, $6 as of which count of reopenings
-- Plan: one range scan of {{name}}_open, blocks by {{name}}_blocks_key, one sort by key, one TID scan for the update.
WITH known AS MATERIALIZED (
    -- Nothing is open below this id, see lowwater.go; unless rows have come back since that was learned.
    SELECT now.reopened
         , CASE WHEN now.reopened = $6 THEN $5 ELSE -9223372036854775808 END AS floor
      FROM (SELECT coalesce((SELECT reopened FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) AS reopened) AS now
), shard AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block) AS blocked
), win AS MATERIALIZED (
    SELECT m.ctid AS tid, m.id, m.message_id
         , CASE WHEN NOT $4::boolean THEN m.ordering_key END COLLATE "C" AS key
         , CASE WHEN m.ordering_key IS NULL OR $4 THEN m.id END AS loner
           -- No index holds a longer key. A CHECK refuses it; where that is gone, such a row stays in the way, and costs the others nothing.
         , coalesce(octet_length(m.ordering_key), 0) <= 512 AS fits
         , greatest(m.locked_until, m.available_at) AS until
         , m.status = 'processing' AS leased
         , m.available_at > statement_timestamp() AS scheduled
           -- The key's block, where it has one.
         , CASE WHEN m.ordering_key IS NOT NULL AND NOT $4 AND (SELECT blocked FROM shard)
                THEN (SELECT w.block_id FROM {{table}}_key_blocks AS w WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = $1)
                END AS block_id
      FROM {{table}} AS m
     WHERE m.target_broker = $1 AND m.shard = $2 AND m.finished_at IS NULL AND NOT m.deferred AND m.id >= (SELECT floor FROM known)
     ORDER BY m.id
     LIMIT $3
), resting AS MATERIALIZED (
    -- The first row of each key that must wait becomes its block, unless it has one.
    SELECT DISTINCT ON (key, loner) tid, id, message_id, key, loner, until, scheduled, block_id
      FROM win
     WHERE NOT leased AND until > statement_timestamp() AND (block_id IS NULL OR block_id = id) AND fits
     ORDER BY key, loner, id
), blocks AS (
    INSERT INTO {{table}}_key_blocks AS w (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
    SELECT $1, $2, key, id, message_id, until, CASE WHEN scheduled THEN 'scheduled' ELSE 'backoff' END FROM resting
        ON CONFLICT (block_message_id, target_broker)
        DO UPDATE SET wake_at = excluded.wake_at, reason = excluded.reason, ordering_key = coalesce(excluded.ordering_key, w.ordering_key)
), behind AS (
    -- Behind a block of before, or behind one of those above. Which of them are in somebody's hands, the update tests.
    SELECT win.tid
      FROM (SELECT tid, id, block_id, fits
                 , min(id) FILTER (WHERE NOT leased AND until > statement_timestamp() AND (block_id IS NULL OR block_id = id))
                   OVER (PARTITION BY key, loner) AS first
              FROM win) AS win
     WHERE fits AND (win.id > win.block_id OR win.id >= win.first)
)
UPDATE {{table}}
   SET deferred = true
 WHERE ctid = ANY (ARRAY(SELECT tid FROM behind)) AND status IN ('pending', 'failed')
