-- Retry, abandon or release rows, if they are still ours. Runs under the shard's lock, waiting for it: the place of a
-- failed head and of its released followers must change in one step for the next window.
-- @rows [{"i": id, "s": new status, "a": attempts spent, "d": delay in microseconds, "e": error}], @token (hex digits)
-- Plan: the rows by primary key.
{{giving way}} UPDATE JSON_TABLE(@rows, '$[*]' COLUMNS (id BIGINT PATH '$.i', status VARCHAR(16) PATH '$.s', spent INT PATH '$.a', delay BIGINT PATH '$.d',
                                         error LONGTEXT PATH '$.e')) AS o
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = o.id
   SET m.finished_at  = CASE WHEN o.status = 'abandoned' THEN UTC_TIMESTAMP(6) END
     , m.attempts     = LEAST(m.attempts + o.spent, 1048575)
     , m.crashes      = CASE WHEN o.spent > 0 THEN 0 ELSE m.crashes END -- it was sent and no process crashed with it
     , m.isolated     = FALSE
     , m.locked_by    = NULL
     , m.lock_token   = NULL
     , m.locked_until = CASE WHEN o.delay > 0 THEN UTC_TIMESTAMP(6) + INTERVAL o.delay MICROSECOND END
     , m.last_error   = COALESCE(o.error, m.last_error)
     , m.status       = o.status
 WHERE m.lock_token = UNHEX(@token) AND m.status = 'processing'
