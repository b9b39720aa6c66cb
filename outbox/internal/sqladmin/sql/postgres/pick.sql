-- Lock the rows that an operator is about to change, in the order of their ids, if they still are what was looked for and no worker has claimed them. Runs
-- under the shards' locks.
-- @message_ids, @brokers, @statuses, @waiting whether pending rows count only when they wait for a time
-- Plan: the rows by primary key.
SELECT m.id, m.message_id::text, m.target_broker
  FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS found (message_id, target_broker)
  JOIN {{table}} AS m ON m.message_id = found.message_id AND m.target_broker = found.target_broker
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.status = ANY (@statuses::text[])
   AND (NOT @waiting::boolean OR m.status <> 'pending' OR greatest(m.locked_until, m.available_at) > statement_timestamp())
   AND (m.status <> 'processing' OR m.locked_until <= statement_timestamp())
 ORDER BY m.id
   FOR UPDATE OF m
