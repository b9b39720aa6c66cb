-- Take the claim locks of shards, waiting for them. A statement of its own: what follows must see what was committed before they were
-- granted. @locks shards of brokers, as hashes, in ascending order
SELECT pg_advisory_xact_lock('{{table}}'::regclass::oid::int, lock) FROM unnest(@locks::int[]) AS lock
