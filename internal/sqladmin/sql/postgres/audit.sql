-- What operators have done, newest first. @before this id, @limit
-- Plan: the primary key, backwards.
SELECT id, actor, via, action, broker, filter, reason, row_count, started_at, ended_at, failure
  FROM {{table}}_audit
 WHERE id < @before
 ORDER BY id DESC
 LIMIT @limit
