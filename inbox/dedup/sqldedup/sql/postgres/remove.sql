-- Remove tokens. Parameter: tokens: a JSON array of objects with consumer and value.
-- Plan: the primary key, for each of them.
DELETE FROM {{table}} AS old
 USING jsonb_to_recordset(CAST(@tokens AS jsonb)) AS used (consumer text, value text)
 WHERE old.kind = 'token' AND old.consumer = used.consumer AND old.token = used.value
