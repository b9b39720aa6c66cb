-- Take the lock of an exclusive task if it is free. {{lock}} name of the task, as a hash
SELECT pg_try_advisory_xact_lock('{{table}}'::regclass::oid::int, {{lock}})
