-- Abandon rows in the name of an operator. Runs under the shards' locks.
-- @message_ids, @brokers, @error what last_error becomes, up to the time and the number of attempts, which stand last
-- Plan: the rows by primary key.
UPDATE {{table}} AS m
   SET status       = 'abandoned'
     , finished_at  = statement_timestamp()
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , isolated     = false
     , deferred     = false
     , available_at = NULL
     , last_error   = @error::text || '"' || to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '","attempt":' || m.attempts || '}'
  FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.message_id = picked.message_id AND m.target_broker = picked.target_broker
