-- Retry, abandon or release rows, if they are still ours.
-- Named parameters: rows (JSON of {id, status, spent, delay, error}), token, now.
UPDATE {{table}}
   SET status       = o.status
     , finished_at  = CASE WHEN o.status = 'abandoned' THEN :now END
     , attempts     = min(attempts + o.spent, 1048575)
     , crashes      = CASE WHEN o.spent = 1 THEN 0 ELSE crashes END -- it was sent and no process crashed with it
     , isolated     = 0
     , locked_by    = NULL
     , lock_token   = NULL
     , locked_until = CASE WHEN o.delay > 0 THEN :now + o.delay END
     , last_error   = coalesce(nullif(o.error, ''), last_error)
  FROM (SELECT value ->> 'id' AS id, value ->> 'status' AS status, value ->> 'spent' AS spent, value ->> 'delay' AS delay
             , value ->> 'error' AS error
          FROM json_each(:rows)) AS o
 WHERE {{name}}.id = o.id AND lock_token = :token AND {{name}}.status = 'processing'
RETURNING id
