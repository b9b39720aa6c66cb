-- What is to be known of open rows to say in which states they are (core.State), and why deferred ones wait: how their times compare with
-- now (0 come, 1 ahead, 2 never), whether their schedule lies ahead, and whether their brokers are paused; what stands about a row
-- itself among the key blocks, and the block of its key in its shard where that is another row: its wake-up (0 no block, 1 ahead, 2 come,
-- 3 none, 4 infinity), its reason, its time and since when; whether the row of the key's block is done, once its wake-up has come; and whether an earlier
-- row of the key is deferred then. Rows are identified by their ids.
-- @now, @ids (a JSON list)
-- Plan: for each row one probe by primary key, two of the blocks, by primary key and by {{name}}_blocks_key, one of the block's row by
-- primary key, and, where that is done, one of {{name}}_deferred_key.
SELECT m.id
     , CASE WHEN max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) >= 253402214400000000 THEN 2 -- in the year 9999
            WHEN m.locked_until > @now THEN 1 ELSE 0 END
     , coalesce(m.available_at, 0) > @now
     , EXISTS (SELECT 1 FROM {{table}}_pauses AS p WHERE p.target_broker = m.target_broker)
     , CASE WHEN own.block_id IS NULL THEN 0 WHEN own.wake_at IS NULL THEN 3 WHEN own.wake_at >= 253402214400000000 THEN 4 WHEN own.wake_at > @now THEN 1 ELSE 2 END
     , own.reason
     , nullif(own.wake_at, 9223372036854775807)
     , own.since
     , CASE WHEN block.block_id IS NULL THEN 0 WHEN block.wake_at IS NULL THEN 3 WHEN block.wake_at >= 253402214400000000 THEN 4 WHEN block.wake_at > @now THEN 1 ELSE 2 END
     , block.reason
     , block.block_id
     , lower(block.block_message_id)
     , nullif(block.wake_at, 9223372036854775807)
     , block.since
     , block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL OR b.available_at IS NOT NULL)
     , CASE WHEN block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL OR b.available_at IS NOT NULL)
            THEN EXISTS (SELECT 1
                           FROM {{table}} AS f INDEXED BY {{name}}_deferred_key
                          WHERE f.target_broker = m.target_broker AND f.ordering_key = m.ordering_key AND f.shard = m.shard AND f.deferred = 1
                            AND f.finished_at IS NULL AND f.available_at IS NULL AND f.id < m.id)
            ELSE false END
  FROM json_each(@ids) AS asked
 CROSS JOIN {{table}} AS m
  LEFT JOIN {{table}}_key_blocks AS own ON own.block_id = m.id
  LEFT JOIN {{table}}_key_blocks AS block INDEXED BY {{name}}_blocks_key
    ON block.target_broker = m.target_broker AND block.ordering_key = m.ordering_key AND block.shard = m.shard AND block.block_id <> m.id
  LEFT JOIN {{table}} AS b ON b.id = block.block_id
 WHERE m.id = asked.value
