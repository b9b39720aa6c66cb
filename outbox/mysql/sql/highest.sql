-- The highest id that there is, of rows that are not committed, too: the transaction reads what is there.
-- Plan: the last entry of the primary key.
SELECT COALESCE(MAX(id), 0) FROM {{table}}
