-- Blocks of which the row is abandoned have nothing to wait for: the next claim moves them on. Runs under the shards' locks.
-- $1 message ids, $2 their brokers
-- Plan: the blocks by primary key.
UPDATE {{table}}_key_blocks AS w
   SET wake_at = NULL
     , reason  = 'backoff'
  FROM unnest($1::text[]::uuid[], $2::text[]) AS picked (message_id, target_broker)
 WHERE w.block_message_id = ANY ($1::text[]::uuid[]) AND w.block_message_id = picked.message_id AND w.target_broker || '' = picked.target_broker
