-- The last errors of some rows. @ids (a JSON list)
-- Plan: the rows by primary key.
SELECT id, last_error
  FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(@ids))
