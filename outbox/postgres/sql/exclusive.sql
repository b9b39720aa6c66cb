-- Take the lock of an exclusive task if it is free. $1 name of the task, as a hash
SELECT pg_try_advisory_xact_lock('{{table}}'::regclass::oid::int, $1::int)
