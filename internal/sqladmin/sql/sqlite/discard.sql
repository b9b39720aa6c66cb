-- Remove abandoned rows in the name of an operator. Runs under the lock. @ids (a JSON list)
-- Plan: the rows by primary key.
DELETE FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(@ids))
