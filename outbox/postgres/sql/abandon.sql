-- Abandon rows in the name of an operator. Runs under the shards' locks.
-- $1 message ids, $2 their brokers, $3 statuses, $4 errors
-- Plan: the rows by primary key.
UPDATE {{table}} AS m
   SET status       = 'abandoned'
     , finished_at  = statement_timestamp()
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , isolated     = false
     , deferred     = false
     , last_error   = picked.last_error
  FROM unnest($1::text[]::uuid[], $2::text[], $4::text[]) AS picked (message_id, target_broker, last_error)
 WHERE m.message_id = ANY ($1::text[]::uuid[]) AND m.message_id = picked.message_id AND m.target_broker = picked.target_broker AND m.status = ANY ($3::text[])
