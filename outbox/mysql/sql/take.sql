-- Claim rows. Each is tested as it is committed: where another session has locked one, the claim gives way and is tried again. {{list}} is ids, @worker, @token (hex digits), @lease in
-- microseconds, @isolated
-- Assignments are made from left to right, so the status, which others depend on, comes last. The room goes to what is new.
-- Plan: the rows by primary key.
{{giving way}} UPDATE {{table}} FORCE INDEX (PRIMARY)
   SET attempts     = attempts + (status = 'processing' AND isolated AND attempts < 1048575)
     , crashes      = crashes + (status = 'processing' AND crashes < 1048575)
     , isolated     = @isolated
     , room         = NULL
     , locked_by    = @worker
     , lock_token   = UNHEX(@token)
     , locked_until = UTC_TIMESTAMP(6) + INTERVAL @lease MICROSECOND
     , status       = 'processing'
 WHERE id IN ({{list}})
   AND deferred = FALSE AND available_at IS NULL AND status IN ('pending', 'failed', 'processing')
   AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6))
