-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the block of their key. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs under the shards' locks.
-- @message_ids, @brokers, @behind whether each is deferred, @ttl new time to live in microseconds, or 0
-- Plan: the rows by primary key.
UPDATE {{table}} AS m
   SET status       = 'pending'
     , published_at = NULL
     , finished_at  = NULL
     , available_at = NULL
     , expires_at   = CASE WHEN @ttl::bigint > 0 THEN statement_timestamp() + @ttl::bigint * interval '1 microsecond'
                           WHEN m.expires_at > statement_timestamp() THEN m.expires_at END
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , attempts     = 0
     , crashes      = 0
     , isolated     = false
     , deferred     = picked.behind
  FROM unnest(@message_ids::text[]::uuid[], @brokers::text[], @behind::boolean[]) AS picked (message_id, target_broker, behind)
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.message_id = picked.message_id AND m.target_broker = picked.target_broker
