-- What the server has counted for the table so far. $1 the table's name
-- Plan: reads the statistics of one table and its indexes.
SELECT (SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE relid = $1::text::regclass)
     , heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
     , (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint
  FROM pg_statio_user_tables
 WHERE relid = $1::text::regclass
