-- Read the blocks of a shard that may be lifted, and the scheduled rows that may be admitted, for a decision: of the blocks those whose time has come, and those that are back in the way of claims,
-- each with what has become of its row; of the first that are done, in the order of their ids, also the first followers.
-- $1 broker, $2 shard, $3 blocks of either kind, $4 blocks that are done, $5 followers of each, $6 scheduled rows
-- Plan: one range scan of {{name}}_scheduled, two range scans of {{name}}_blocks_wake, the blocks' rows by primary key, per block that is done two range scans of {{name}}_deferred_key.
WITH found AS MATERIALIZED (
    -- The orders are those of the index: without them the planner may read all blocks of the broker by another one.
    (SELECT target_broker, ordering_key, block_id, block_message_id, true AS due
       FROM {{table}}_key_blocks
      WHERE target_broker = $1 AND shard = $2 AND wake_at <= statement_timestamp()
      ORDER BY wake_at
      LIMIT $3)
     UNION ALL
    (SELECT target_broker, ordering_key, block_id, block_message_id, false
       FROM {{table}}_key_blocks
      WHERE target_broker = $1 AND shard = $2 AND wake_at IS NULL
      ORDER BY target_broker, shard, wake_at
      LIMIT $3)
), state AS MATERIALIZED (
    SELECT f.ordering_key, f.block_id, f.block_message_id, f.due
         , m.message_id IS NULL OR m.finished_at IS NOT NULL OR m.available_at IS NOT NULL AS done
         , coalesce(m.status IN ('pending', 'failed') AND m.locked_until > statement_timestamp(), false) AS waits
      FROM found AS f
      LEFT JOIN {{table}} AS m ON m.message_id = f.block_message_id AND m.target_broker = f.target_broker
), done AS MATERIALIZED (
    -- Followers stand behind their block, or have its id (an identity that began anew). While there are enough of them the search begins there, past all that was let through
    -- before, of which the index keeps entries for as long as vacuum is held back. The last search looks at the whole key.
    SELECT ordering_key, block_message_id
         , CASE WHEN EXISTS (SELECT FROM (SELECT FROM {{table}} AS m
                                           WHERE m.target_broker = $1 AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(d.ordering_key, $2)
                                             AND m.ordering_key = d.ordering_key AND m.shard + 0 = $2 AND m.deferred AND m.finished_at IS NULL
                                             AND m.id >= d.block_id
                                           ORDER BY m.id
                                          OFFSET $5 - 1
                                           LIMIT 1) AS last)
                THEN block_id ELSE -9223372036854775808 END AS first
      FROM (SELECT ordering_key, block_id, block_message_id FROM state WHERE done AND ordering_key IS NOT NULL ORDER BY block_id LIMIT $4) AS d
)
SELECT coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0)
     , state.block_message_id, state.block_id, coalesce(state.ordering_key, ''), state.ordering_key IS NOT NULL, state.due, state.done, state.waits
     , coalesce(followers.ids, '{}'), coalesce(followers.message_ids, '{}'), false
  FROM state
  LEFT JOIN LATERAL (SELECT array_agg(follower.id ORDER BY follower.id) AS ids
                          , array_agg(follower.message_id ORDER BY follower.id) AS message_ids
                       FROM done
                      CROSS JOIN LATERAL (SELECT id, message_id
                                            FROM {{table}} AS m
                                           WHERE m.target_broker = $1 AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(done.ordering_key, $2)
                                             AND m.ordering_key = done.ordering_key AND m.shard + 0 = $2 AND m.deferred AND m.finished_at IS NULL
                                             AND m.id >= done.first
                                           ORDER BY m.id
                                           LIMIT $5) AS follower
                      WHERE done.block_message_id = state.block_message_id) AS followers ON true
 UNION ALL
(SELECT coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0), message_id, id, '', false, false, false, false, '{}', '{}', true
   FROM {{table}}
  WHERE target_broker = $1 AND shard = $2 AND available_at <= statement_timestamp()
  ORDER BY target_broker, shard, available_at
  LIMIT $6)
 ORDER BY 3
