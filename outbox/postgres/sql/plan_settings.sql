-- No plan of a claim depends on its arguments, and one made for each would take a twentieth of the time of a batch of 500.
-- But a plan that is made once may be made while the table has a few rows, and is kept while it grows: none reads it from end to end.
-- And none is compiled: a plan that looks expensive takes less time than its compilation.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true)
     , set_config('jit', 'off', true)
     , set_config('enable_seqscan', 'off', true)
