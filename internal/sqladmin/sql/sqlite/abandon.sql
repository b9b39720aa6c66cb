-- Abandon rows in the name of an operator. Runs under the lock.
-- @now, @ids (a JSON list), @error what last_error becomes, up to the time and the number of attempts, which stand last
-- Plan: the rows by primary key.
UPDATE {{table}}
   SET status       = 'abandoned'
     , finished_at  = @now
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , isolated     = 0
     , deferred     = 0
     , available_at = NULL
     , last_error   = @error || strftime('"%Y-%m-%dT%H:%M:%S', @now / 1000000, 'unixepoch') || printf('.%06dZ","attempt":%d}', @now % 1000000, attempts)
 WHERE id IN (SELECT value FROM json_each(@ids))
