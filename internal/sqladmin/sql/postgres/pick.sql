-- Lock the rows that an operator is about to change, in the order of their ids, and read what is decided by. Rows that a worker has claimed are left alone:
-- their completion would wait. Runs under the shards' locks.
-- @message_ids, @brokers
-- Plan: the rows by primary key.
SELECT m.id, m.message_id::text, m.target_broker, coalesce(m.ordering_key, ''), m.shard, m.status
     , m.status <> 'processing' AND coalesce(greatest(m.locked_until, m.available_at) > statement_timestamp(), false), m.deferred
  FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS found (message_id, target_broker)
  JOIN {{table}} AS m ON m.message_id = found.message_id AND m.target_broker = found.target_broker
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[])
   AND (m.status <> 'processing' OR m.locked_until <= statement_timestamp())
 ORDER BY m.id
   FOR UPDATE OF m
