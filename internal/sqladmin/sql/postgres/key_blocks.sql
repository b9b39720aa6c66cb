-- The blocks behind which keys of a broker wait: first those that need an operator, then the oldest. A block that is back in the claim's way
-- is none. Errors are read by errors_of.sql, for those that are shown. Of each shard the blocks that wake first are looked at, 2,000 of both kinds. @broker, @limit
-- Plan, with settings_browse.sql: for each shard two range scans of {{name}}_blocks_wake (what {{name}}_blocks_key has as its predicate would
-- tempt the planner to walk that one); a sort of what they found; the rows of the blocks by {{name}}_pkey, which no comparison of the
-- broker like this one keeps the planner from.
SELECT block.ordering_key, block.block_id, block.block_message_id::text, coalesce(m.status, 'abandoned'), block.reason, block.since, block.wake_at
     , false, NULL::text, block.shard
  FROM (SELECT found.*
          FROM generate_series(0, 11) AS n (shard)
         CROSS JOIN LATERAL ((SELECT w.shard, w.ordering_key, w.block_id, w.block_message_id, w.wake_at, w.reason, w.since
                                FROM {{table}}_key_blocks AS w
                               WHERE w.target_broker = @broker AND w.shard = n.shard AND w.wake_at = 'infinity' AND coalesce(w.ordering_key, '') <> ''
                               ORDER BY w.target_broker, w.shard, w.wake_at
                               LIMIT 2000)
                             UNION ALL
                             (SELECT w.shard, w.ordering_key, w.block_id, w.block_message_id, w.wake_at, w.reason, w.since
                                FROM {{table}}_key_blocks AS w
                               WHERE w.target_broker = @broker AND w.shard = n.shard AND w.wake_at < 'infinity' AND coalesce(w.ordering_key, '') <> ''
                               ORDER BY w.target_broker, w.shard, w.wake_at
                               LIMIT 2000)) AS found
         ORDER BY found.wake_at = 'infinity' DESC, found.since, found.block_id
         LIMIT @limit::bigint) AS block
  LEFT JOIN LATERAL (SELECT m.status
                       FROM {{table}} AS m
                      WHERE m.message_id = block.block_message_id AND m.target_broker || '' = @broker) AS m ON true
 ORDER BY block.wake_at = 'infinity' DESC, block.since, block.block_id
