-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the block of their key. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs under the shards' locks.
-- @rows (a JSON list of id, behind whether it is deferred), @ttl new time to live in microseconds, or 0
-- Plan: the rows by primary key.
{{giving way}} UPDATE JSON_TABLE(@rows, '$[*]' COLUMNS (id BIGINT PATH '$.id', behind INT PATH '$.behind')) AS picked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.id
   SET m.status       = 'pending'
     , m.published_at = NULL
     , m.finished_at  = NULL
     , m.available_at = NULL
     , m.expires_at   = CASE WHEN @ttl > 0 THEN UTC_TIMESTAMP(6) + INTERVAL @ttl MICROSECOND WHEN m.expires_at > UTC_TIMESTAMP(6) THEN m.expires_at END
     , m.locked_until = NULL
     , m.locked_by    = NULL
     , m.lock_token   = NULL
     , m.attempts     = 0
     , m.crashes      = 0
     , m.isolated     = FALSE
     , m.deferred     = picked.behind
