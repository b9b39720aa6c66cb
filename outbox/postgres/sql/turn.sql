-- Count a change of the shard's key blocks, where no other process has counted one since they were read, and say whether that is so. What follows in
-- the transaction asks fanout.turn, and changes nothing where it is not 'mine'.
-- $1 broker, $2 shard, $3 version as it was read
WITH turn AS (
    INSERT INTO {{table}}_shards AS l (target_broker, shard, version)
    SELECT $1, $2 % 4, 1
     WHERE $3::bigint = 0 OR EXISTS (SELECT FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4)
        ON CONFLICT (target_broker, shard) DO UPDATE SET version = l.version + 1 WHERE l.version = $3
    RETURNING version
)
SELECT set_config('fanout.turn', CASE WHEN (SELECT version FROM turn) = $3 + 1 THEN 'mine' ELSE 'lost' END, true) = 'mine'
