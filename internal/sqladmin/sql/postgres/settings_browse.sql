-- Settings of a transaction in which an operator looks at rows. Rows are read in the order of an index and no further than the limits,
-- whatever the statistics say: a sort would first gather all rows of a broker. Whoever looks leaves the other processors to those who
-- deliver, and waits no longer than a person does.
SELECT set_config('statement_timeout', '5s', true)
     , set_config('enable_seqscan', 'off', true)
     , set_config('enable_bitmapscan', 'off', true)
     , set_config('enable_sort', 'off', true)
     , set_config('max_parallel_workers_per_gather', '0', true)
     , set_config('jit', 'off', true)
