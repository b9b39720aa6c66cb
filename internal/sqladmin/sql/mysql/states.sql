-- What is to be known of open rows to say in which states they are (core.State), and why deferred ones wait: how their times compare with
-- now (0 come, 1 ahead, 2 never), whether their schedule lies ahead, and whether their brokers are paused; what stands about a row
-- itself among the key blocks, and the block of its key in its shard where that is another row: its wake-up (0 no block, 1 ahead, 2 come,
-- 3 none, 4 infinity), its reason, its time and since when; whether the row of the key's block is done, once its wake-up has come; and whether an earlier
-- row of the key is deferred then. Rows are identified by their ids.
-- @ids (a JSON list)
-- Plan: for each row one probe by primary key, two of the blocks, by primary key and by {{name}}_blocks_key, one of the block's row by
-- primary key, and, where that is done, one of {{name}}_held.
SELECT m.id
     , CASE WHEN GREATEST(COALESCE(m.locked_until, '1000-01-01'), COALESCE(m.available_at, '1000-01-01')) >= '9999-12-31' THEN 2
            WHEN m.locked_until > UTC_TIMESTAMP(6) THEN 1 ELSE 0 END
     , COALESCE(m.available_at > UTC_TIMESTAMP(6), FALSE)
     , EXISTS (SELECT 1 FROM {{table}}_pauses AS p WHERE p.target_broker = m.target_broker)
     , CASE WHEN own.block_id IS NULL THEN 0 WHEN own.wake_at IS NULL THEN 3 WHEN own.wake_at >= '9999-12-31' THEN 4 WHEN own.wake_at > UTC_TIMESTAMP(6) THEN 1 ELSE 2 END
     , own.reason
     , CASE WHEN own.wake_at < '9999-12-31' THEN {{micros own.wake_at}} END
     , {{micros own.since}}
     , CASE WHEN block.block_id IS NULL THEN 0 WHEN block.wake_at IS NULL THEN 3 WHEN block.wake_at >= '9999-12-31' THEN 4 WHEN block.wake_at > UTC_TIMESTAMP(6) THEN 1 ELSE 2 END
     , block.reason
     , block.block_id
     , {{uuid block.block_message_id}}
     , CASE WHEN block.wake_at < '9999-12-31' THEN {{micros block.wake_at}} END
     , {{micros block.since}}
     , block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL OR b.available_at IS NOT NULL)
     , CASE WHEN block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL OR b.available_at IS NOT NULL)
            THEN EXISTS (SELECT 1
                           FROM {{table}} AS f FORCE INDEX ({{name}}_held)
                          WHERE f.held_key = UNHEX(SHA2(m.ordering_key, 256)) AND f.target_broker = m.target_broker AND f.shard = m.shard AND f.id < m.id)
            ELSE FALSE END
  FROM {{ids @ids}} AS asked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = asked.item
  LEFT JOIN {{table}}_key_blocks AS own FORCE INDEX (PRIMARY) ON own.block_id = m.id
  LEFT JOIN {{table}}_key_blocks AS block FORCE INDEX ({{name}}_blocks_key)
    ON block.key_hash = UNHEX(SHA2(m.ordering_key, 256)) AND block.target_broker = m.target_broker AND block.shard = m.shard AND block.block_id <> m.id
  LEFT JOIN {{table}} AS b FORCE INDEX (PRIMARY) ON b.id = block.block_id
