-- Put blocks in the places of rows, or leave them in their own: from now on they wait for nothing but that row. Runs under the shards' locks.
-- @block_messages, @block_brokers, @block_shards, @to_messages, @to_ids
-- Plan: the blocks by primary key (the predicate of {{name}}_blocks_key would tempt the planner to walk that one).
UPDATE {{table}}_key_blocks AS w
   SET block_id         = moved.to_id
     , block_message_id = moved.to_message
     , wake_at          = NULL
     , reason           = 'backoff'
  FROM unnest(@block_messages::text[]::uuid[], @block_brokers::text[], @block_shards::int[], @to_messages::text[]::uuid[], @to_ids::bigint[])
    AS moved (message_id, target_broker, shard, to_message, to_id)
 WHERE w.block_message_id = ANY (@block_messages::text[]::uuid[])
   AND w.block_message_id = moved.message_id AND w.target_broker || '' = moved.target_broker AND w.shard + 0 = moved.shard
