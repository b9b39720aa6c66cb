-- Why rows are deferred: what blocks their keys, or makes them wait alone. Rows are told by their ids.
-- @ids, @brokers, @message_ids, @keys and @shards of the rows, '' = no key
-- Plan, with settings_browse.sql: for each row one probe of {{name}}_blocks_key and one of {{name}}_blocks_pkey.
SELECT asked.id, found.by_key, found.reason, found.block_message_id::text, found.wake_at
  FROM unnest(@ids::bigint[], @brokers::text[], @message_ids::text[], @keys::text[], @shards::bigint[]) AS asked (id, broker, message_id, ordering_key, shard)
 CROSS JOIN LATERAL (SELECT true AS by_key, w.reason, w.block_message_id, w.wake_at
                       FROM {{table}}_key_blocks AS w
                      WHERE w.ordering_key = asked.ordering_key AND w.target_broker || '' = asked.broker AND w.shard + 0 = asked.shard
                      UNION ALL
                     SELECT false, w.reason, w.block_message_id, w.wake_at
                       FROM {{table}}_key_blocks AS w
                      WHERE w.block_message_id = asked.message_id::uuid AND w.target_broker || '' = asked.broker AND w.ordering_key IS NULL) AS found
