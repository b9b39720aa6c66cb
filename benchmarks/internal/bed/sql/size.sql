-- How large a table is, and what it keeps out of line. $1 the table's name
-- Plan: reads the catalog and the sizes of files.
SELECT pg_relation_size(oid), coalesce(pg_total_relation_size(nullif(reltoastrelid, 0)), 0)
  FROM pg_class
 WHERE oid = $1::text::regclass
