-- What operators have done, newest first. $1 before this id, $2 limit
-- Plan: the primary key, backwards.
SELECT id, actor, via, action, broker, filter, reason, row_count, started_at, ended_at, failure
  FROM {{table}}_audit
 WHERE id < $1
 ORDER BY id DESC
 LIMIT $2
