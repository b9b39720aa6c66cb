-- The transactions that may have taken an id and not committed yet: whoever writes to the table holds this lock from before the
-- id is taken until what it wrote can be seen. A prepared transaction has no name of its own here, and is listed as "-1/...".
SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{}')
  FROM pg_locks
 WHERE locktype = 'relation' AND relation = '{{table}}'::regclass AND mode = 'RowExclusiveLock'
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
