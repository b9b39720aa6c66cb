-- Settings of a purge's transaction: rows are taken in the order of the index, one batch's worth. Before the table was analysed
-- for the first time the planner would rather gather all of them and sort them, once for each batch.
SELECT set_config('enable_bitmapscan', 'off', true)
     , set_config('jit', 'off', true)
     , set_config('enable_sort', 'off', true)
     , set_config('enable_seqscan', 'off', true)
