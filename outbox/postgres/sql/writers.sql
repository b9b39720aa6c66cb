-- The transactions that may have taken an id and not committed yet: whoever writes to the table holds this lock from before the
-- id is taken until what it wrote can be seen. Each with its number, 0 while it has none: the lowest of those that it has locked, since
-- savepoints have higher ones. A prepared transaction has no name of its own here, and is listed as "-1/...".
WITH newest AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS number
), writing AS MATERIALIZED (
    SELECT DISTINCT virtualtransaction
      FROM pg_locks
     WHERE locktype = 'relation' AND relation = '{{table}}'::regclass AND mode = 'RowExclusiveLock'
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
), numbered AS MATERIALIZED (
    -- What is locked are the lower 32 bits of a number: it is within 2^31 of the newest one.
    SELECT l.virtualtransaction, min(newest.number + (l.transactionid::text::bigint - newest.number + 2147483648) % 4294967296
                                     + CASE WHEN (l.transactionid::text::bigint - newest.number + 2147483648) % 4294967296 < 0 THEN 4294967296 ELSE 0 END - 2147483648) AS number
      FROM newest
     CROSS JOIN pg_locks AS l
     WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
     GROUP BY l.virtualtransaction
)
SELECT coalesce(array_agg(writing.virtualtransaction), '{}')
     , coalesce(array_agg(coalesce(numbered.number, 0)), '{}')
  FROM writing
  LEFT JOIN numbered USING (virtualtransaction)
