-- What operators have done, newest first. Named parameters: before (an id), limit. Plan: a range of the primary key, backwards.
SELECT id, started_at, coalesce(ended_at, 0), actor, via, action, broker, filter, reason, row_count, failure
  FROM {{table}}_audit
 WHERE id < :before
 ORDER BY id DESC
 LIMIT :limit
