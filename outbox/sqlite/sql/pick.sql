-- Of the rows that were found, those that still are what was looked for and in no worker's hands, and their attempts. Runs under the lock.
-- Named parameters: ids (JSON), statuses (JSON), waiting (whether pending rows count only when they wait for a time), now.
SELECT id, attempts
  FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status IN (SELECT value FROM json_each(:statuses))
   AND (NOT :waiting OR status <> 'pending' OR max(coalesce(locked_until, 0), coalesce(available_at, 0)) > :now)
   AND (status <> 'processing' OR locked_until <= :now)
