-- Why rows are deferred: what blocks their keys, or makes them wait alone. Rows are told by their place in the lists.
-- $1 brokers, $2 message ids, $3 ordering keys, '' = none
-- Plan, with browse_settings.sql: for each row one probe of {{name}}_blocks_key and one of {{name}}_blocks_pkey.
SELECT asked.place, found.by_key, found.reason, found.block_message_id::text, found.wake_at
  FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS asked (broker, message_id, ordering_key, place)
 CROSS JOIN LATERAL (SELECT true AS by_key, w.reason, w.block_message_id, w.wake_at
                       FROM {{table}}_key_blocks AS w
                      WHERE w.ordering_key = asked.ordering_key AND w.target_broker || '' = asked.broker
                      UNION ALL
                     SELECT false, w.reason, w.block_message_id, w.wake_at
                       FROM {{table}}_key_blocks AS w
                      WHERE w.block_message_id = asked.message_id::uuid AND w.target_broker || '' = asked.broker AND w.ordering_key IS NULL) AS found
