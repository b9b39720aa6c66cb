-- Remove tokens. Parameter: tokens: a JSON array of objects with consumer and value.
-- Plan: the primary key, for each of them.
DELETE FROM {{table}}
 WHERE kind = 'token'
   AND (consumer, token) IN (SELECT used.value ->> 'consumer', used.value ->> 'value' FROM json_each(@tokens) AS used)
