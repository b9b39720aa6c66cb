-- Where each broker stands. @limit: no count goes beyond it
-- A dirty read, like counts.sql: it counts what is being written, and waits for nobody. Only texts of errors are read as committed, and
-- rows that somebody is writing passed over.
-- Plan: hops from one broker to the next in {{name}}_open, {{name}}_deferred_key and {{name}}_finished. For each broker a bounded range scan of each shard of
-- {{name}}_open, covered, of {{name}}_deferred_key and {{name}}_failing, with a seek of {{name}}_pkey per entry, and two of {{name}}_finished.
DECLARE @brokers TABLE (
    name   nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    deferred bigint        NOT NULL,
    oldest datetime2(6)  NULL,
    latest datetime2(6)  NULL
);
DECLARE @counted TABLE (
    name      nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    status    nvarchar(16)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    row_count bigint        NOT NULL,
    more      bit           NOT NULL -- rows of this status may be among what was not looked at
);
DECLARE @heads TABLE (shard int NOT NULL, status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL, row_count bigint NOT NULL);
DECLARE @aside TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL, created_at datetime2(6) NOT NULL);
DECLARE @failing TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @name nvarchar(128) = N'', @look bigint = CASE WHEN @limit < 20000 THEN 20000 ELSE @limit + 1 END;
DECLARE @deferred_rows bigint, @failing_rows bigint, @cut bit;
SET @now = SYSUTCDATETIME();
WHILE @name IS NOT NULL
BEGIN
    SET @name = (SELECT MIN(later.target_broker)
                   FROM (SELECT MIN(target_broker) AS target_broker
                           FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
                          WHERE finished_at IS NULL AND deferred = 0 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_deferred_key), NOLOCK)
                          WHERE finished_at IS NULL AND deferred = 1 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_finished), NOLOCK)
                          WHERE finished_at IS NOT NULL AND target_broker > @name) AS later);
    IF @name IS NOT NULL
    BEGIN
        DELETE FROM @heads;
        DELETE FROM @aside;
        DELETE FROM @failing;
        INSERT INTO @heads (shard, status, row_count)
        SELECT shards.shard, head.status, COUNT_BIG(*)
          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
         CROSS APPLY (SELECT TOP (@look) m.status
                        FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, NOLOCK)
                       WHERE m.target_broker = @name AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0
                       ORDER BY m.id) AS head
         GROUP BY shards.shard, head.status;
        INSERT INTO @aside (status, created_at)
        SELECT m.status, m.created_at
          FROM (SELECT TOP (@limit + 1) p.id
                  FROM {{table}} AS p WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
                 WHERE p.target_broker = @name AND p.deferred = 1 AND p.finished_at IS NULL) AS deferred
         INNER JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = deferred.id;
        SET @deferred_rows = @@ROWCOUNT;
        SET @cut = CASE WHEN @deferred_rows > @limit OR EXISTS (SELECT 1 FROM @heads GROUP BY shard HAVING SUM(row_count) >= @look) THEN 1 ELSE 0 END;
        INSERT INTO @counted (name, status, row_count, more)
        SELECT @name, statuses.status
             , (SELECT COALESCE(SUM(h.row_count), 0) FROM @heads AS h WHERE h.status = statuses.status COLLATE Latin1_General_100_BIN2)
               + (SELECT COUNT_BIG(*) FROM @aside AS a WHERE a.status = statuses.status COLLATE Latin1_General_100_BIN2)
             , @cut
          FROM (VALUES (N'pending'), (N'processing'), (N'failed')) AS statuses (status);
        -- What has failed is known also where it lies behind more than was looked at.
        INSERT INTO @failing (id)
        SELECT TOP (@limit + 1) m.id
          FROM {{table}} AS m WITH (INDEX({{name}}_failing), FORCESEEK, NOLOCK)
         WHERE m.target_broker = @name AND m.last_error IS NOT NULL AND m.finished_at IS NULL
         ORDER BY m.id DESC;
        SET @failing_rows = @@ROWCOUNT;
        IF @cut = 1
            UPDATE c
               SET row_count = CASE WHEN c.row_count < f.row_count THEN f.row_count ELSE c.row_count END
                 , more      = CASE WHEN @failing_rows > @limit THEN 1 ELSE 0 END
              FROM @counted AS c
             CROSS JOIN (SELECT COUNT_BIG(*) AS row_count
                           FROM @failing AS i
                          INNER JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = i.id
                          WHERE m.status = N'failed') AS f
             WHERE c.name = @name AND c.status = N'failed';
        INSERT INTO @counted (name, status, row_count, more)
        SELECT @name, statuses.status, finished.row_count, 0
          FROM (VALUES (N'published'), (N'abandoned')) AS statuses (status)
         CROSS APPLY (SELECT COUNT_BIG(*) AS row_count
                        FROM (SELECT TOP (@limit + 1) m.id
                                FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, NOLOCK)
                               WHERE m.target_broker = @name AND m.status = statuses.status COLLATE Latin1_General_100_BIN2 AND m.finished_at IS NOT NULL) AS some_rows) AS finished;
        INSERT INTO @brokers (name, deferred, oldest, latest)
        SELECT @name, @deferred_rows
             , (SELECT MIN(o.created_at)
                  FROM (SELECT first_rows.created_at
                          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
                         CROSS APPLY (SELECT TOP (100) m.created_at
                                        FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, NOLOCK)
                                       WHERE m.target_broker = @name AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0
                                       ORDER BY m.id) AS first_rows
                         UNION ALL
                        SELECT created_at FROM @aside) AS o)
             , (SELECT TOP (1) m.published_at
                  FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @name AND m.status = N'published' AND m.finished_at IS NOT NULL
                 ORDER BY m.finished_at DESC);
    END;
END;
SELECT name AS fanout_overview
     , deferred
     , CASE WHEN oldest < @now THEN DATEDIFF_BIG(MICROSECOND, oldest, @now) ELSE 0 END AS age
     , latest
  FROM @brokers
 ORDER BY name;
SELECT name AS fanout_count, status, row_count, more FROM @counted ORDER BY name, status;
-- The last error of each broker: of the newest rows that have failed, and of those that were abandoned last.
SELECT b.name AS fanout_error, latest.last_error
  FROM @brokers AS b
 CROSS APPLY (SELECT TOP (1) e.last_error
                FROM (SELECT f.id, f.last_error
                        FROM (SELECT TOP (1000) m.id, m.last_error
                                FROM {{table}} AS m WITH (INDEX({{name}}_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = b.name AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                               ORDER BY m.id DESC) AS f
                       UNION ALL
                      SELECT a.id, a.last_error
                        FROM (SELECT TOP (100) m.id, m.last_error
                                FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = b.name AND m.status = N'abandoned' AND m.finished_at IS NOT NULL
                               ORDER BY m.finished_at DESC, m.id DESC) AS a
                       WHERE a.last_error IS NOT NULL) AS e
               ORDER BY CASE WHEN ISJSON(e.last_error) = 1 THEN JSON_VALUE(e.last_error, '$.at') COLLATE Latin1_General_100_BIN2 END DESC, e.id DESC) AS latest;
