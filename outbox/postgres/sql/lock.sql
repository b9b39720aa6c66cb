-- Take the lane's claim lock, waiting for it. A statement of its own: what follows must see what was committed before
-- the lock was granted. $1 lane of a broker, as a hash
SELECT pg_advisory_xact_lock('{{table}}'::regclass::oid::int, $1::int)
