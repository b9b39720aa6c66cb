-- What operators have done, newest first. @before this id, @limit
-- Plan: a range of the primary key, backwards.
SELECT id, actor, via, action, broker, filter, reason, row_count, {{micros started_at}}, {{micros ended_at}}, failure
  FROM {{table}}_audit
 WHERE id < @before
 ORDER BY id DESC
 LIMIT @limit
