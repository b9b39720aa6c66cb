-- Settings of a transaction that counts rows. Open rows are found by their indexes, also where statistics are stale, so that
-- the many finished rows beside them are not read; and whoever looks leaves the other processors to those who deliver.
SELECT set_config('enable_seqscan', 'off', true)
     , set_config('enable_bitmapscan', 'off', true)
     , set_config('max_parallel_workers_per_gather', '0', true)
     , set_config('jit', 'off', true)
