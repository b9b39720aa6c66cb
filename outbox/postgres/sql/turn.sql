-- Count a change of the shard's key blocks, where nobody else has counted one since they were read; else break the transaction off (22012,
-- division by zero). $1 broker, $2 shard, $3 version as it was read
WITH turn AS (
    INSERT INTO {{table}}_shards AS l (target_broker, shard, version)
    SELECT $1, $2 % 4, 1
        ON CONFLICT (target_broker, shard) DO UPDATE SET version = l.version + 1 WHERE l.version = $3
    RETURNING version
)
SELECT 1 / (coalesce((SELECT version FROM turn), 0) = $3 + 1)::int
