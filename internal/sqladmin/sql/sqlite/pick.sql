-- What is decided by of the rows that an operator is about to change, but for those that a worker has claimed. Runs under the lock. @now, @ids (a JSON list)
-- Plan: the rows by primary key.
SELECT id, '', target_broker, coalesce(ordering_key, ''), shard, status
     , status <> 'processing' AND max(coalesce(locked_until, 0), coalesce(available_at, 0)) > @now
     , deferred
  FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(@ids)) AND (status <> 'processing' OR locked_until <= @now)
 ORDER BY id
