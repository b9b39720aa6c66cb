-- Take the shard's claim lock if it is free. A statement of its own: the claim's snapshot must come after the lock.
-- Losing the commit of a claim only repeats a send, so it need not wait for the disk. For lock_timeout and
-- enable_seqscan see lock.sql, for the plan plan_settings.sql.
-- $1 shard of a broker, as a hash
SELECT set_config('fanout.shard', CASE WHEN pg_try_advisory_xact_lock('{{table}}'::regclass::oid::int, $1::int)
                                      THEN 'held' ELSE 'busy' END, true)
     , set_config('jit', 'off', true)
     , set_config('synchronous_commit', 'off', true)
     , {{include part_give_way}}
     , {{include part_end_silence}}
     , set_config('enable_seqscan', 'off', true)
     , set_config('plan_cache_mode', 'force_generic_plan', true)
