-- What is to be known of open rows to say in which states they are (core.State), and why deferred ones wait: how their times compare with
-- now (0 come, 1 ahead, 2 never), whether their schedule lies ahead, and whether their brokers are paused; what stands about a row
-- itself among the key blocks, and the block of its key in its shard where that is another row: its wake-up (0 no block, 1 ahead, 2 come,
-- 3 none, 4 infinity), its reason, its time and since when; whether the row of the key's block is done, once its wake-up has come; and whether an earlier
-- row of the key is deferred then. Rows are identified by their ids.
-- @ids, @brokers, @message_ids, @keys and @shards of the rows, '' = no key
-- Plan, with settings_browse.sql: for each row one probe of {{name}}_pkey, one of {{name}}_blocks_pkey and one of {{name}}_blocks_key; where
-- a block's wake-up has come, one of {{name}}_pkey, and, where its row is done, one of {{name}}_deferred_key.
SELECT asked.id
     , CASE WHEN greatest(m.locked_until, m.available_at) = 'infinity' THEN 2 WHEN m.locked_until > statement_timestamp() THEN 1 ELSE 0 END
     , coalesce(m.available_at > statement_timestamp(), false)
     , EXISTS (SELECT FROM {{table}}_pauses AS p WHERE p.target_broker = asked.broker)
     , coalesce(own.wake, 0), own.reason, own.wake_at, own.since
     , coalesce(block.wake, 0), block.reason, block.block_id, block.block_message_id::text, block.wake_at, block.since
     , coalesce(block.done, false)
     , CASE WHEN block.done
            THEN EXISTS (SELECT FROM {{table}} AS f
                          WHERE f.target_broker = asked.broker AND hashtextextended(f.ordering_key, f.shard) = hashtextextended(asked.ordering_key, asked.shard)
                            AND f.ordering_key = asked.ordering_key AND f.shard + 0 = asked.shard AND f.deferred AND f.finished_at IS NULL AND f.available_at IS NULL AND f.id < asked.id)
            ELSE false END
  FROM unnest(@ids::bigint[], @brokers::text[], @message_ids::text[], @keys::text[], @shards::bigint[]) AS asked (id, broker, message_id, ordering_key, shard)
       -- No index serves these comparisons of the broker: one that does would be as good to a planner that knows of no rows.
 CROSS JOIN LATERAL (SELECT row.locked_until, row.available_at
                       FROM {{table}} AS row
                      WHERE row.message_id = asked.message_id::uuid AND row.target_broker || '' = asked.broker) AS m
  LEFT JOIN LATERAL (SELECT w.reason, w.wake_at, w.since
                          , CASE WHEN w.wake_at IS NULL THEN 3 WHEN w.wake_at = 'infinity' THEN 4 WHEN w.wake_at > statement_timestamp() THEN 1 ELSE 2 END AS wake
                       FROM {{table}}_key_blocks AS w
                      WHERE w.block_message_id = asked.message_id::uuid AND w.target_broker || '' = asked.broker
                      LIMIT 1) AS own ON true
  LEFT JOIN LATERAL (SELECT w.reason, w.wake_at, w.since, w.block_id, w.block_message_id
                          , CASE WHEN w.wake_at IS NULL THEN 3 WHEN w.wake_at = 'infinity' THEN 4 WHEN w.wake_at > statement_timestamp() THEN 1 ELSE 2 END AS wake
                          , CASE WHEN coalesce(w.wake_at <= statement_timestamp(), true)
                                 THEN NOT EXISTS (SELECT FROM {{table}} AS b
                                                   WHERE b.message_id = w.block_message_id AND b.target_broker || '' = asked.broker AND b.finished_at IS NULL AND b.available_at IS NULL)
                                 ELSE false END AS done
                       FROM {{table}}_key_blocks AS w
                      WHERE w.ordering_key = asked.ordering_key AND w.target_broker || '' = asked.broker AND w.shard + 0 = asked.shard
                        AND w.block_message_id <> asked.message_id::uuid
                      LIMIT 1) AS block ON true
