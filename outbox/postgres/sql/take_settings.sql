-- Settings of the transaction that takes what was chosen. Losing its commit only repeats a send, so it need not wait for the disk.
-- For the others see lock.sql.
SELECT set_config('synchronous_commit', 'off', true)
     , set_config('jit', 'off', true)
     , {{include part_give_way}}
     , {{include part_end_silence}}
     , set_config('enable_seqscan', 'off', true)
     , set_config('plan_cache_mode', 'force_generic_plan', true)
