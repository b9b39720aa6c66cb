-- How many rows wait for each of some rows that block their keys in their shards? Answers with the places of these, from 0 on, and whether
-- there may be more. @broker, @keys, @ids and @shards (JSON lists), @max_count followers at most are counted for each
-- A dirty read: it does not wait for locks.
-- Plan: for each of them a seek of {{name}}_deferred_key and a range scan of 5,000 rows of its shard in {{name}}_open, covered.
DECLARE @found TABLE (
    place        int           NOT NULL PRIMARY KEY,
    id           bigint        NOT NULL,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_hash     binary(32)    NOT NULL,
    shard        int           NOT NULL
);
INSERT INTO @found (place, id, ordering_key, key_hash, shard)
SELECT CONVERT(int, k.[key]), CONVERT(bigint, i.[value]), k.[value]
     , CONVERT(binary(32), HASHBYTES('SHA2_256', CONVERT(nvarchar(1024), k.[value]))), CONVERT(int, s.[value])
  FROM OPENJSON(@keys) AS k
 INNER JOIN OPENJSON(@ids) AS i ON i.[key] = k.[key]
 INNER JOIN OPENJSON(@shards) AS s ON s.[key] = k.[key];
SELECT f.place AS fanout_place
     , deferred_part.followers + behind.followers AS followers
     , CONVERT(bit, CASE WHEN behind.looked = 5000 THEN 1 ELSE 0 END) AS more
  FROM @found AS f
 CROSS APPLY (SELECT COUNT_BIG(*) AS followers
                FROM (SELECT TOP (@max_count + 1) p.id
                        FROM {{table}} AS p WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
                       WHERE p.target_broker = @broker AND p.key_hash = f.key_hash AND p.shard = f.shard AND p.id > f.id
                         AND p.deferred = 1 AND p.finished_at IS NULL) AS deferred_rows) AS deferred_part
 CROSS APPLY (SELECT COALESCE(SUM(CASE WHEN o.ordering_key = f.ordering_key AND DATALENGTH(o.ordering_key) = DATALENGTH(f.ordering_key) THEN 1 ELSE 0 END), 0) AS followers
                   , COUNT_BIG(*) AS looked
                FROM (SELECT TOP (5000) n.ordering_key
                        FROM {{table}} AS n WITH (INDEX({{name}}_open), FORCESEEK, NOLOCK)
                       WHERE n.target_broker = @broker AND n.shard = f.shard AND n.id > f.id AND n.finished_at IS NULL AND n.deferred = 0
                       ORDER BY n.id) AS o) AS behind;
