-- Gates of which the row is abandoned have nothing to wait for: the next claim moves them on. Runs under the lanes' locks.
-- $1 message ids, $2 their brokers
-- Plan: the gates by primary key.
UPDATE {{table}}_waiting AS w
   SET wake_at = NULL
     , reason  = 'retry'
  FROM unnest($1::text[]::uuid[], $2::text[]) AS picked (message_id, target_broker)
 WHERE w.gate_message_id = ANY ($1::text[]::uuid[]) AND w.gate_message_id = picked.message_id AND w.target_broker || '' = picked.target_broker
