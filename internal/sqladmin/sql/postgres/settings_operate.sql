-- Settings of an operator's transaction, which keeps all shards of a broker waiting: rows are found by their keys and joined to
-- the list by hash, whatever the statistics say. No lock is waited for without end: an error is seen, a wait is not. For rows see
-- lock_shards.sql.
SELECT set_config('enable_seqscan', 'off', true)
     , set_config('jit', 'off', true)
     , set_config('enable_nestloop', 'off', true)
     , set_config('lock_timeout', '10s', true)
     , {{include part_end_silence}}
