-- What was published. The list is of ids. Plan: the rows by primary key.
UPDATE {{table}}
   SET status = 'published', published_at = UTC_TIMESTAMP(6), finished_at = UTC_TIMESTAMP(6), attempts = attempts + 1
     , locked_by = NULL, lock_token = NULL, locked_until = NULL
 WHERE id IN ({{list}})
