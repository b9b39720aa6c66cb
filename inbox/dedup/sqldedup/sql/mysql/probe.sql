-- Fails where a table of that name has other columns, or another index.
SELECT created_at, kind, consumer, token
  FROM {{table}} FORCE INDEX ({{name}}_age)
 LIMIT 1
