-- Take the shard's claim lock, waiting for it. A statement of its own: what follows must see what was committed before
-- the lock was granted. $1 shard of a broker, as a hash
-- A plan that was made while a table was empty may be kept for long, so none of them reads a table from end to end.
-- This lock is not waited for without end: an error is seen, a wait is not. Behind it the transaction gives way to whoever has locked a row.
SELECT set_config('lock_timeout', '10s', true)
     , set_config('jit', 'off', true)
     , set_config('enable_seqscan', 'off', true)
     , {{include part_end_silence}}
     , CASE WHEN pg_advisory_xact_lock('{{table}}'::regclass::oid::int, $1::int)::text IS NOT NULL
            THEN {{include part_give_way}} END
