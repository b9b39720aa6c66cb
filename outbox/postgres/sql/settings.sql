-- Settings of a completion's transaction. Its rows are joined by hash: with stale statistics the planner expects one open
-- row, and a nested loop over two lists of thousands would keep the shard's lock for seconds. For lock_timeout see lock.sql, for
-- enable_seqscan and the plan plan_settings.sql.
SELECT set_config('enable_nestloop', 'off', true)
     , set_config('jit', 'off', true)
     , {{include part_give_way}}
     , {{include part_end_silence}}
     , set_config('plan_cache_mode', 'force_generic_plan', true)
     , set_config('enable_seqscan', 'off', true)
