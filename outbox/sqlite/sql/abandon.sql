-- Abandon rows in the name of an operator. Named parameters: rows (JSON of {id, error}), now. Plan: the rows by primary key.
UPDATE {{table}}
   SET status       = 'abandoned'
     , finished_at  = :now
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , isolated     = 0
     , deferred     = 0
     , last_error   = o.error
  FROM (SELECT value ->> 'id' AS id, value ->> 'error' AS error FROM json_each(:rows)) AS o
 WHERE {{name}}.id = o.id
