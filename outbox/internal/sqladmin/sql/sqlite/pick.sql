-- Of the rows that were found, those that still are what was looked for and that no worker has claimed. Runs under the lock.
-- @now, @ids and @statuses (JSON lists), @waiting whether pending rows count only when they wait for a time
-- Plan: the rows by primary key.
SELECT id, lower(message_id), target_broker
  FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(@ids))
   AND status IN (SELECT value FROM json_each(@statuses))
   AND (NOT @waiting OR status <> 'pending' OR max(coalesce(locked_until, 0), coalesce(available_at, 0)) > @now)
   AND (status <> 'processing' OR locked_until <= @now)
