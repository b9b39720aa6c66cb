-- Remove tokens. Parameter: tokens: a JSON array of objects with consumer and value.
-- Plan: the primary key, for each of them.
DELETE old
  FROM {{table}} AS old
  JOIN OPENJSON(@tokens) WITH (consumer nvarchar(256), value nvarchar(128)) AS used
    ON old.consumer = used.consumer COLLATE Latin1_General_100_BIN2 AND old.token = used.value COLLATE Latin1_General_100_BIN2
 WHERE old.kind = N'token'
