-- Where one broker stands: the counts of each status, those of open rows with whether there may be more; the deferred rows; the age of the
-- oldest open row in microseconds; when a row was published last; the last error. No count goes far beyond @limit. What no operator has acknowledged counts among the newest abandoned rows. @broker, @limit
-- Behind the first 20,000 rows of a shard, or @limit, none are read: the counts of open rows say that there are more then.
-- A dirty read, like counts.sql: it counts what is being written, and does not wait for locks. Only texts of errors are read as committed, and
-- rows that another transaction is writing passed over.
-- Plan: a bounded range scan of each shard of {{name}}_open, covered, and of {{name}}_scheduled_ids, of {{name}}_deferred_key and {{name}}_failing, with a seek of
-- {{name}}_pkey per entry, and two of {{name}}_finished.
DECLARE @heads TABLE (shard int NOT NULL, status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL, row_count bigint NOT NULL);
DECLARE @deferred_rows TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL, created_at datetime2(6) NOT NULL);
DECLARE @scheduled TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL, ahead int NOT NULL);
DECLARE @failing TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @look bigint = CASE WHEN @limit < 20000 THEN 20000 ELSE @limit + 1 END;
DECLARE @deferred_count bigint, @scheduled_count bigint, @failing_rows bigint, @failed_rows bigint, @oldest datetime2(6), @cut bit;
SET @now = SYSUTCDATETIME();
INSERT INTO @heads (shard, status, row_count)
SELECT shards.shard, head.status, COUNT_BIG(*)
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT TOP (@look) m.status
                FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, NOLOCK)
               WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
               ORDER BY m.id) AS head
 GROUP BY shards.shard, head.status;
INSERT INTO @deferred_rows (status, created_at)
SELECT m.status, m.created_at
  FROM (SELECT TOP (@limit + 1) p.id
          FROM {{table}} AS p WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
         WHERE p.target_broker = @broker AND p.deferred = 1 AND p.finished_at IS NULL) AS deferred
 INNER JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = deferred.id
 WHERE m.available_at IS NULL;
SET @deferred_count = @@ROWCOUNT;
INSERT INTO @scheduled (status, ahead)
SELECT TOP (@limit + 1) m.status, CASE WHEN m.available_at > @now THEN 1 ELSE 0 END
  FROM {{table}} AS m WITH (INDEX({{name}}_scheduled_ids), FORCESEEK, NOLOCK)
 WHERE m.target_broker = @broker AND m.available_at IS NOT NULL
 ORDER BY m.id;
SET @scheduled_count = @@ROWCOUNT;
SET @cut = CASE WHEN @deferred_count > @limit OR @scheduled_count > @limit OR EXISTS (SELECT 1 FROM @heads GROUP BY shard HAVING SUM(row_count) >= @look) THEN 1 ELSE 0 END;
-- What has failed is known also where it lies behind more than was looked at.
INSERT INTO @failing (id)
SELECT TOP (@limit + 1) m.id
  FROM {{table}} AS m WITH (INDEX({{name}}_failing), FORCESEEK, NOLOCK)
 WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
 ORDER BY m.id DESC;
SET @failing_rows = @@ROWCOUNT;
SET @failed_rows = (SELECT COALESCE(SUM(h.row_count), 0) FROM @heads AS h WHERE h.status = N'failed')
                 + (SELECT COUNT_BIG(*) FROM @deferred_rows AS a WHERE a.status = N'failed')
                 + (SELECT COUNT_BIG(*) FROM @scheduled AS s WHERE s.status = N'failed');
IF @cut = 1
    SET @failed_rows = (SELECT CASE WHEN @failed_rows < COUNT_BIG(*) THEN COUNT_BIG(*) ELSE @failed_rows END
                          FROM @failing AS i
                         INNER JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = i.id
                         WHERE m.status = N'failed');
SET @oldest = (SELECT MIN(o.created_at)
            FROM (SELECT first_rows.created_at
                    FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
                   CROSS APPLY (SELECT TOP (100) m.created_at
                                  FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, NOLOCK)
                                 WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
                                 ORDER BY m.id) AS first_rows
                   UNION ALL
                  SELECT created_at FROM @deferred_rows) AS o);
SELECT (SELECT COALESCE(SUM(h.row_count), 0) FROM @heads AS h WHERE h.status = N'pending')
       + (SELECT COUNT_BIG(*) FROM @deferred_rows AS a WHERE a.status = N'pending')
       + (SELECT COUNT_BIG(*) FROM @scheduled AS s WHERE s.status = N'pending') AS fanout_pending
     , @cut AS more_pending
     , (SELECT COALESCE(SUM(h.row_count), 0) FROM @heads AS h WHERE h.status = N'processing') AS processing
     , @cut AS more_processing
     , @failed_rows AS failed
     , CONVERT(bit, CASE WHEN @cut = 1 AND @failing_rows > @limit THEN 1 ELSE 0 END) AS more_failed
     , (SELECT COUNT_BIG(*)
          FROM (SELECT TOP (@limit + 1) m.id
                  FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.status = N'published' AND m.finished_at IS NOT NULL) AS some_rows) AS published
     , (SELECT COUNT_BIG(*)
          FROM (SELECT TOP (@limit + 1) m.id
                  FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.status = N'abandoned' AND m.finished_at IS NOT NULL) AS some_rows) AS abandoned
     , @deferred_count AS deferred
     , CASE WHEN @oldest < @now THEN DATEDIFF_BIG(MICROSECOND, @oldest, @now) ELSE 0 END AS age
     , (SELECT TOP (1) m.published_at
          FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, NOLOCK)
         WHERE m.target_broker = @broker AND m.status = N'published' AND m.finished_at IS NOT NULL
         ORDER BY m.finished_at DESC) AS last_published
       -- Of the newest rows that have failed, and of those that were abandoned last.
     , (SELECT TOP (1) e.last_error
          FROM (SELECT f.id, f.last_error
                  FROM (SELECT TOP (1000) m.id, m.last_error
                          FROM {{table}} AS m WITH (INDEX({{name}}_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                         ORDER BY m.id DESC) AS f
                 UNION ALL
                SELECT a.id, a.last_error
                  FROM (SELECT TOP (100) m.id, m.last_error
                          FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = N'abandoned' AND m.finished_at IS NOT NULL
                         ORDER BY m.finished_at DESC, m.id DESC) AS a
                 WHERE a.last_error IS NOT NULL) AS e
         ORDER BY CASE WHEN ISJSON(e.last_error) = 1 THEN JSON_VALUE(e.last_error, '$.at') COLLATE Latin1_General_100_BIN2 END DESC, e.id DESC) AS last_error
     , (SELECT COALESCE(SUM(CONVERT(bigint, s.ahead)), 0) FROM @scheduled AS s) AS scheduled
     , (SELECT COUNT_BIG(*)
          FROM (SELECT TOP (@limit + 1) m.last_error
                  FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE m.target_broker = @broker AND m.status = N'abandoned' AND m.finished_at IS NOT NULL
                 ORDER BY m.finished_at DESC) AS newest
         WHERE newest.last_error IS NULL OR LEFT(newest.last_error, 21) <> N'{"acknowledged":true,') AS unacknowledged;
