-- Take the claim locks of shards, waiting for them; for rows the transaction waits less from then on. A statement of its own: what follows
-- must see what was committed before they were granted. @locks shards of brokers, as hashes, in ascending order
WITH held AS MATERIALIZED (
    SELECT pg_advisory_xact_lock('{{table}}'::regclass::oid::int, lock) FROM unnest(@locks::int[]) AS lock
)
SELECT CASE WHEN count(*) >= 0 THEN {{include part_give_way}} END FROM held
