-- Settings of an operator's transaction, which keeps all shards of a broker waiting: rows are found by their keys and joined to
-- the list by hash, whatever the statistics say. For lock_timeout see lock.sql.
SELECT set_config('enable_seqscan', 'off', true)
     , set_config('enable_nestloop', 'off', true)
     , set_config('lock_timeout', '10s', true)
