-- How many deferred rows stand behind each of some rows that block their keys? Answers with the places of these, from 0 on. No count goes beyond
-- @max_count and one. @broker, @blockers (a JSON list of id, key, shard)
-- A dirty read: it does not wait for locks.
-- Plan: for each key a seek of {{name}}_deferred_key that stops after so many rows.
DECLARE @held TABLE (
    place    int        NOT NULL PRIMARY KEY,
    id       bigint     NOT NULL,
    key_hash binary(32) NOT NULL,
    shard    int        NOT NULL
);
INSERT INTO @held (place, id, key_hash, shard)
SELECT CONVERT(int, l.[key]), b.id, CONVERT(binary(32), HASHBYTES('SHA2_256', CONVERT(nvarchar(1024), b.ordering_key))), b.shard
  FROM OPENJSON(@blockers) AS l
 CROSS APPLY OPENJSON(l.[value]) WITH (id bigint '$.id', ordering_key nvarchar(1024) '$.key', shard int '$.shard') AS b;
SELECT held.place AS fanout_place
     , behind.followers
  FROM @held AS held
 CROSS APPLY (SELECT COUNT_BIG(*) AS followers
                FROM (SELECT TOP (@max_count + 1) p.id
                        FROM {{table}} AS p WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
                       WHERE p.target_broker = @broker AND p.key_hash = held.key_hash AND p.shard = held.shard AND p.id > held.id
                         AND p.deferred = 1 AND p.finished_at IS NULL) AS deferred_rows) AS behind;
