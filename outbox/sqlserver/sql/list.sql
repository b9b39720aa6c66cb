-- One page of the rows of a broker in one status, newest first.
-- @broker, @status, @type or '', @type_prefix or '', @key or '', @error_class or '', @since or '' and @until or '' as ISO 8601 in UTC,
-- @after or '' (the same) and @after_id where the page before ended, @limit rows at most of @scan that are looked at
-- It waits for nobody: rows that somebody is writing are passed over.
-- Plan: one range scan, backwards, that ends after @scan entries: of {{name}}_finished (two: any number of rows can have finished at the
-- instant where the page before ended, and its entries end with the id, by which the table is clustered), of {{name}}_failing, or of each shard of
-- {{name}}_open and of {{name}}_deferred, or where a key is asked for of its rows in {{name}}_deferred_key. Then one seek of {{name}}_pkey per row that may do, in order, until there are
-- @limit. No statistics decide on that: the indexes are named, and the list is numbered in the order in which it is read.
DECLARE @seen TABLE (
    place  bigint       NOT NULL PRIMARY KEY,
    id     bigint       NOT NULL,
    at     datetime2(6) NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL -- NULL: the index does not tell
);
DECLARE @looked bigint;
DECLARE @key_hash binary(32) = CONVERT(binary(32), HASHBYTES('SHA2_256', CONVERT(nvarchar(1024), @key)));
DECLARE @after_at datetime2(6) = CASE WHEN @after = N'' THEN '9999-12-31T23:59:59.999999' ELSE CONVERT(datetime2(6), @after, 126) END;
IF @status IN (N'published', N'abandoned')
    INSERT INTO @seen (place, id, at)
    SELECT ROW_NUMBER() OVER (ORDER BY f.finished_at DESC, f.id DESC), f.id, f.finished_at
      FROM (SELECT TOP (@scan) ended.id, ended.finished_at
              FROM (SELECT tied.id, tied.finished_at
                      FROM (SELECT TOP (@scan) m.id, m.finished_at
                              FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                             WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL
                               AND m.finished_at = @after_at AND m.id < @after_id
                             ORDER BY m.id DESC) AS tied
                     UNION ALL
                    SELECT older.id, older.finished_at
                      FROM (SELECT TOP (@scan) m.id, m.finished_at
                              FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                             WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL AND m.finished_at < @after_at
                             ORDER BY m.finished_at DESC, m.id DESC) AS older) AS ended
             ORDER BY ended.finished_at DESC, ended.id DESC) AS f;
ELSE IF @status = N'failed'
    INSERT INTO @seen (place, id)
    SELECT ROW_NUMBER() OVER (ORDER BY f.id DESC), f.id
      FROM (SELECT TOP (@scan) m.id
              FROM {{table}} AS m WITH (INDEX({{name}}_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
             WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL AND m.id < @after_id
             ORDER BY m.id DESC) AS f;
ELSE
    INSERT INTO @seen (place, id, status)
    SELECT ROW_NUMBER() OVER (ORDER BY o.id DESC), o.id, o.status
      FROM (SELECT TOP (@scan) entry.id, entry.status
              FROM (SELECT head.id, head.status
                      FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
                     CROSS APPLY (SELECT TOP (@scan) m.id, m.status
                                    FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                   WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.id < @after_id
                                     AND m.finished_at IS NULL AND m.deferred = 0
                                   ORDER BY m.id DESC) AS head
                     UNION ALL
                       -- What is claimed is not deferred.
                    SELECT deferred.id, CONVERT(nvarchar(16), NULL) COLLATE Latin1_General_100_BIN2
                      FROM (SELECT TOP (@scan) m.id
                              FROM {{table}} AS m WITH (INDEX({{name}}_deferred), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                             WHERE @key = N'' AND @status = N'pending' AND m.target_broker = @broker AND m.id < @after_id
                               AND m.deferred = 1 AND m.finished_at IS NULL
                             ORDER BY m.id DESC) AS deferred
                     UNION ALL
                    SELECT aside.id, CONVERT(nvarchar(16), NULL) COLLATE Latin1_General_100_BIN2
                      FROM (SELECT TOP (@scan) m.id
                              FROM {{table}} AS m WITH (INDEX({{name}}_deferred_key), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                             WHERE @key <> N'' AND m.target_broker = @broker AND m.key_hash = @key_hash AND m.id < @after_id
                               AND m.deferred = 1 AND m.finished_at IS NULL
                             ORDER BY m.id DESC) AS aside) AS entry
             ORDER BY entry.id DESC) AS o;
SET @looked = (SELECT COUNT_BIG(*) FROM @seen);
SELECT TOP (@limit) s.place AS fanout_listed
{{columns}}
  FROM @seen AS s
 INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = s.id
 WHERE (s.status IS NULL OR s.status = @status)
   AND m.status = @status
   AND m.target_broker = @broker
       -- = ignores trailing spaces, the length does not.
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)))
   AND (@error_class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                                   THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @error_class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
 ORDER BY s.place;
SELECT place AS fanout_looked, id, at FROM @seen WHERE place = @looked;
