-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the block of their key. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs under the lock.
-- @now, @rows (a JSON list of id, behind whether it is deferred), @ttl new time to live in microseconds, or 0
-- Plan: the rows by primary key.
UPDATE {{table}} AS m
   SET status       = 'pending'
     , published_at = NULL
     , finished_at  = NULL
     , available_at = NULL
     , expires_at   = CASE WHEN @ttl > 0 THEN @now + @ttl WHEN expires_at > @now THEN expires_at END
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , attempts     = 0
     , crashes      = 0
     , isolated     = 0
     , deferred     = json_extract(picked.value, '$.behind')
  FROM json_each(@rows) AS picked
 WHERE m.id = json_extract(picked.value, '$.id')
