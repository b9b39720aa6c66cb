-- Mark abandoned rows as seen by an operator: their last_error begins with the mark from then on. One that is no JSON object is kept as the
-- message. Runs under the lock. @ids (a JSON list)
-- Plan: the rows by primary key.
UPDATE {{table}}
   SET last_error = CASE WHEN substr(last_error, 1, 21) = '{"acknowledged":true,' THEN last_error
                         WHEN substr(last_error, 1, 2) = '{"' THEN '{"acknowledged":true,' || substr(last_error, 2)
                         ELSE '{"acknowledged":true,"class":"","message":' || json_quote(substr(coalesce(last_error, ''), 1, 2000)) || '}' END
 WHERE id IN (SELECT value FROM json_each(@ids))
