-- abandon
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @moved_rows int, @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
DECLARE @shards TABLE (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard         int           NOT NULL,
    PRIMARY KEY (target_broker, shard)
);
INSERT INTO @shards (target_broker, shard)
SELECT listed.broker, numbers.shard
  FROM (SELECT DISTINCT broker COLLATE Latin1_General_100_BIN2 AS broker FROM OPENJSON(@lock_brokers) WITH (broker nvarchar(128) '$')) AS listed
 CROSS JOIN (VALUES (0), (1), (2), (3)) AS numbers (shard);
INSERT INTO app.outbox_shards (target_broker, shard, version)
SELECT s.target_broker, s.shard, 0
  FROM @shards AS s
 WHERE NOT EXISTS (SELECT 1 FROM app.outbox_shards AS l WITH (FORCESEEK) WHERE l.target_broker = s.target_broker AND l.shard = s.shard);
UPDATE l
   SET version = l.version + 1
  FROM @shards AS s
 INNER JOIN app.outbox_shards AS l WITH (ROWLOCK, FORCESEEK) ON l.target_broker = s.target_broker AND l.shard = s.shard;
DECLARE @listed TABLE (
    id     bigint       NOT NULL PRIMARY KEY,
    shard  int          NOT NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    waits  bit          NOT NULL,
    behind bit          NOT NULL
);
DECLARE @seen TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @listed (id, shard, status, waits, behind)
SELECT id, shard, status, waits, behind
  FROM OPENJSON(@rows) WITH (id bigint '$.id', shard int '$.shard', status nvarchar(16) '$.status', waits bit '$.waits', behind bit '$.behind');
INSERT INTO @seen (block_id, shard, operator, back)
SELECT block_id, shard, operator, back
  FROM OPENJSON(@known) WITH (block_id bigint '$.id', shard int '$.shard', operator bit '$.operator', back bit '$.back');
SET @now = SYSUTCDATETIME();
IF (SELECT COUNT(*)
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.shard = l.shard AND m.status = l.status AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
       AND (m.status <> N'pending' OR l.waits = CASE WHEN m.locked_until > @now OR m.available_at > @now THEN 1 ELSE 0 END))
   <> (SELECT COUNT(*) FROM @listed)
    THROW 50123, N'a row of app.outbox that an operator acts on has changed', 1;
DECLARE @entries TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @entries (block_id, shard, operator, back)
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox_key_blocks AS w WITH (FORCESEEK) ON w.block_id = l.id
 UNION
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = l.id
 INNER JOIN app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
    ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.ordering_key IS NOT NULL;
IF EXISTS (SELECT block_id, shard, operator, back FROM @entries EXCEPT SELECT block_id, shard, operator, back FROM @seen)
   OR EXISTS (SELECT block_id, shard, operator, back FROM @seen EXCEPT SELECT block_id, shard, operator, back FROM @entries)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
DELETE w
  FROM (SELECT block_id, shard FROM OPENJSON(@forgotten) WITH (block_id bigint '$.id', shard int '$.shard')) AS gone
 INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = gone.block_id AND w.shard = gone.shard
 WHERE COALESCE(w.ordering_key, N'') = N'';
DECLARE @moved TABLE (block_id bigint NOT NULL, shard int NOT NULL, to_id bigint NOT NULL, operator bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @moved (block_id, shard, to_id, operator)
SELECT block_id, shard, to_id, operator
  FROM OPENJSON(@moves) WITH (block_id bigint '$.id', shard int '$.shard', to_id bigint '$.to', operator bit '$.operator');
UPDATE w
   SET block_id         = v.to_id
     , block_message_id = COALESCE(m.message_id, w.block_message_id)
     , wake_at          = NULL
     , reason           = N'backoff'
  FROM @moved AS v
 INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = v.block_id AND w.shard = v.shard
  LEFT JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = NULLIF(v.to_id, v.block_id)
 WHERE w.ordering_key IS NOT NULL AND v.operator = CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END;
SET @moved_rows = @@ROWCOUNT;
IF @moved_rows <> (SELECT COUNT(*) FROM @moved)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
    SET @error = CONCAT(@error, N'"', REPLACE(CONVERT(nvarchar(30), @now, 121), N' ', N'T'), N'Z","attempt":');
    UPDATE m
       SET status       = N'abandoned'
         , finished_at  = @now
         , locked_until = NULL
         , locked_by    = NULL
         , lock_token   = NULL
         , isolated     = 0
         , deferred     = 0
         , last_error   = CONCAT(@error, m.attempts, N'}')
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @operated_rows AS fanout_operated;

-- acknowledge
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
DECLARE @shards TABLE (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard         int           NOT NULL,
    PRIMARY KEY (target_broker, shard)
);
INSERT INTO @shards (target_broker, shard)
SELECT listed.broker, numbers.shard
  FROM (SELECT DISTINCT broker COLLATE Latin1_General_100_BIN2 AS broker FROM OPENJSON(@lock_brokers) WITH (broker nvarchar(128) '$')) AS listed
 CROSS JOIN (VALUES (0), (1), (2), (3)) AS numbers (shard);
INSERT INTO app.outbox_shards (target_broker, shard, version)
SELECT s.target_broker, s.shard, 0
  FROM @shards AS s
 WHERE NOT EXISTS (SELECT 1 FROM app.outbox_shards AS l WITH (FORCESEEK) WHERE l.target_broker = s.target_broker AND l.shard = s.shard);
UPDATE l
   SET version = l.version + 1
  FROM @shards AS s
 INNER JOIN app.outbox_shards AS l WITH (ROWLOCK, FORCESEEK) ON l.target_broker = s.target_broker AND l.shard = s.shard;
DECLARE @listed TABLE (
    id     bigint       NOT NULL PRIMARY KEY,
    shard  int          NOT NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    waits  bit          NOT NULL,
    behind bit          NOT NULL
);
DECLARE @seen TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @listed (id, shard, status, waits, behind)
SELECT id, shard, status, waits, behind
  FROM OPENJSON(@rows) WITH (id bigint '$.id', shard int '$.shard', status nvarchar(16) '$.status', waits bit '$.waits', behind bit '$.behind');
INSERT INTO @seen (block_id, shard, operator, back)
SELECT block_id, shard, operator, back
  FROM OPENJSON(@known) WITH (block_id bigint '$.id', shard int '$.shard', operator bit '$.operator', back bit '$.back');
SET @now = SYSUTCDATETIME();
IF (SELECT COUNT(*)
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.shard = l.shard AND m.status = l.status AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
       AND (m.status <> N'pending' OR l.waits = CASE WHEN m.locked_until > @now OR m.available_at > @now THEN 1 ELSE 0 END))
   <> (SELECT COUNT(*) FROM @listed)
    THROW 50123, N'a row of app.outbox that an operator acts on has changed', 1;
DECLARE @entries TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @entries (block_id, shard, operator, back)
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox_key_blocks AS w WITH (FORCESEEK) ON w.block_id = l.id
 UNION
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = l.id
 INNER JOIN app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
    ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.ordering_key IS NOT NULL;
IF EXISTS (SELECT block_id, shard, operator, back FROM @entries EXCEPT SELECT block_id, shard, operator, back FROM @seen)
   OR EXISTS (SELECT block_id, shard, operator, back FROM @seen EXCEPT SELECT block_id, shard, operator, back FROM @entries)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
    UPDATE m
       SET last_error = CASE WHEN LEFT(m.last_error, 21) = N'{"acknowledged":true,' THEN m.last_error
                             WHEN LEFT(m.last_error, 2) = N'{"' THEN CONCAT(N'{"acknowledged":true,', SUBSTRING(m.last_error, 2, LEN(m.last_error)))
                             ELSE CONCAT(N'{"acknowledged":true,"class":"","message":"', STRING_ESCAPE(LEFT(COALESCE(m.last_error, N''), 2000), 'json'), N'"}') END
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @operated_rows AS fanout_operated;

-- applied
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
IF OBJECT_ID(N'app.outbox_migrations') IS NULL
    SELECT CONVERT(int, NULL) AS fanout_version;
ELSE
    SELECT version AS fanout_version FROM app.outbox_migrations ORDER BY version;

-- audit
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT TOP (@limit) id AS fanout_entry
     , actor
     , via
     , action
     , broker
     , filter
     , reason
     , row_count
     , started_at
     , ended_at
     , failure
  FROM app.outbox_audit WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
 WHERE id < @before
 ORDER BY id DESC;

-- audit_begin
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
INSERT INTO app.outbox_audit (actor, via, action, broker, filter, reason)
VALUES (@actor, @via, @action, @broker, @filter, @reason);
SELECT CONVERT(bigint, SCOPE_IDENTITY()) AS fanout_begun;

-- audit_end
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
UPDATE a
   SET ended_at  = SYSUTCDATETIME()
     , row_count = @rows
     , failure   = @failure
  FROM app.outbox_audit AS a WITH (ROWLOCK, FORCESEEK)
 WHERE a.id = @id AND a.ended_at IS NULL;
SELECT @@ROWCOUNT AS fanout_ended;

-- backlog
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @behind TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, since datetime2(7) NULL);
DECLARE @name nvarchar(128) = N'';
DECLARE @left TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
SET @now = SYSUTCDATETIME();
INSERT INTO @left (name)
SELECT DISTINCT known.name
  FROM OPENJSON(@brokers) WITH (name nvarchar(128) COLLATE Latin1_General_100_BIN2 '$') AS known;
WHILE @name IS NOT NULL
BEGIN
    IF @most > 0
        SET @name = (SELECT MIN(later.target_broker)
                   FROM (SELECT MIN(target_broker) AS target_broker
                           FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                          WHERE finished_at IS NULL AND deferred = 0 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM app.outbox WITH (INDEX(outbox_deferred_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                          WHERE finished_at IS NULL AND deferred = 1 AND target_broker > @name) AS later);
    IF @most <= 0 OR @name IS NULL
    BEGIN
        SET @most = 0;
        SET @name = (SELECT MIN(name) FROM @left WHERE name NOT IN (SELECT name FROM @behind));
    END;
    SET @most = @most - 1;
    IF @name IS NOT NULL
        INSERT INTO @behind (name, since)
        SELECT @name, MIN(waiting.since)
          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
         OUTER APPLY (SELECT TOP (1) (SELECT MAX(times.at) FROM (VALUES (head.created_at), (head.available_at), (head.locked_until)) AS times (at)) AS since
                        FROM (SELECT id, created_at, available_at, locked_until, ordering_key
                                   , ROW_NUMBER() OVER (PARTITION BY ordering_key ORDER BY claimed DESC, id) AS place
                                FROM (SELECT TOP (1000) m.id, m.created_at, m.available_at, m.locked_until, m.ordering_key
                                           , CASE WHEN m.status = N'processing' AND (m.locked_until > @now OR m.available_at > @now) THEN 1 ELSE 0 END AS claimed
                                        FROM app.outbox AS m WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                       WHERE m.target_broker = @name AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0
                                       ORDER BY m.id) AS listed) AS head
                       WHERE (head.ordering_key IS NULL OR head.place = 1)
                         AND (head.locked_until IS NULL OR head.locked_until <= @now)
                         AND (head.available_at IS NULL OR head.available_at <= @now)
                         AND NOT EXISTS (SELECT 1
                                           FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                          WHERE w.target_broker = @name AND w.ordering_key IS NOT NULL
                                            AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', head.ordering_key))
                                            AND w.shard = shards.shard
                                            AND (w.block_id < head.id OR w.wake_at IS NULL OR w.wake_at <= @now)
                                            AND 1 = CASE WHEN (w.wake_at IS NULL OR w.wake_at <= @now)
                                                              AND NOT EXISTS (SELECT 1
                                                                                FROM app.outbox AS b WITH (FORCESEEK, NOLOCK)
                                                                               WHERE b.id = w.block_id AND b.finished_at IS NULL)
                                                         THEN CASE WHEN EXISTS (SELECT 1
                                                                                  FROM app.outbox AS f WITH (INDEX(outbox_deferred_key), FORCESEEK, NOLOCK)
                                                                                 WHERE f.target_broker = @name AND f.key_hash = w.key_hash AND f.shard = shards.shard
                                                                                   AND f.deferred = 1 AND f.finished_at IS NULL AND f.id < head.id)
                                                                   THEN 1 ELSE 0 END
                                                         WHEN w.block_id < head.id THEN 1 ELSE 0 END)
                       ORDER BY head.id) AS claimable
         OUTER APPLY (SELECT MIN(CASE WHEN b.id IS NOT NULL AND b.finished_at IS NULL
                                      THEN CASE WHEN b.deferred = 1 AND (b.locked_until IS NULL OR b.locked_until <= @now) AND (b.available_at IS NULL OR b.available_at <= @now)
                                                THEN w.wake_at END
                                      ELSE f.since END) AS wake_at
                        FROM (SELECT *
                                FROM (SELECT TOP (500) block_id, key_hash, wake_at, since
                                        FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                       WHERE target_broker = @name AND shard = shards.shard AND wake_at <= @now
                                       ORDER BY wake_at) AS come
                               UNION ALL
                              SELECT *
                                FROM (SELECT TOP (500) block_id, key_hash, wake_at, since
                                        FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                       WHERE target_broker = @name AND shard = shards.shard AND wake_at IS NULL
                                       ORDER BY block_id) AS back) AS w
                        LEFT JOIN app.outbox AS b WITH (FORCESEEK, NOLOCK) ON b.id = w.block_id
                       OUTER APPLY (SELECT TOP (1) CASE WHEN (m.locked_until IS NULL OR m.locked_until <= @now) AND (m.available_at IS NULL OR m.available_at <= @now)
                                                        THEN (SELECT MAX(times.at)
                                                                FROM (VALUES (COALESCE(b.finished_at, w.wake_at, w.since)), (m.available_at), (m.locked_until)) AS times (at)) END AS since
                                      FROM app.outbox AS m WITH (INDEX(outbox_deferred_key), FORCESEEK, NOLOCK)
                                     WHERE m.target_broker = @name AND m.key_hash = w.key_hash AND m.shard = shards.shard AND m.deferred = 1 AND m.finished_at IS NULL
                                     ORDER BY m.id) AS f) AS due
         CROSS APPLY (VALUES (claimable.since), (due.wake_at)) AS waiting (since);
END;
SELECT name AS fanout_behind
     , CASE WHEN since < @now AND NOT EXISTS (SELECT 1 FROM app.outbox_pauses AS pause WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE pause.target_broker = behind.name)
            THEN DATEDIFF_BIG(MICROSECOND, since, @now) ELSE 0 END
  FROM @behind AS behind
 ORDER BY name;

-- beside
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT SUM(CASE WHEN counted.looked >= @limit THEN 1 ELSE counted.beside END) AS fanout_beside
  FROM (SELECT COUNT_BIG(*) AS looked, COUNT_BIG(CASE WHEN r.id <> @id AND (r.stream = @stream OR @stream = N'') THEN 1 END) AS beside
          FROM (SELECT TOP (@limit) m.id
                  FROM app.outbox AS m WITH (INDEX(outbox_open), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.finished_at IS NULL AND m.deferred = 0) AS opened
         INNER JOIN app.outbox AS r WITH (FORCESEEK, NOLOCK) ON r.id = opened.id
         UNION ALL
        SELECT COUNT_BIG(*), COUNT_BIG(CASE WHEN r.id <> @id AND (r.stream = @stream OR @stream = N'') THEN 1 END)
          FROM (SELECT TOP (@limit) m.id
                  FROM app.outbox AS m WITH (INDEX(outbox_deferred), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.finished_at IS NULL AND m.deferred = 1) AS deferred_rows
         INNER JOIN app.outbox AS r WITH (FORCESEEK, NOLOCK) ON r.id = deferred_rows.id) AS counted;

-- blocked_keys
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT TOP (@limit) target_broker AS fanout_blocked_key
     , ordering_key
     , LOWER(CONVERT(char(36), block_message_id)) AS block_message_id
     , since
  FROM app.outbox_key_blocks WITH (NOLOCK)
 WHERE (@broker = N'' OR target_broker = @broker) AND reason = N'operator' AND wake_at = '9999-12-31'
 ORDER BY since, block_id;

-- blocking
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @ids TABLE (message_id uniqueidentifier NOT NULL PRIMARY KEY);
DECLARE @wanted TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @by_id bit = 0;
INSERT INTO @wanted (status)
SELECT DISTINCT status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$');
IF @message_ids <> N'[]'
BEGIN
    SET @by_id = 1;
    INSERT INTO @ids (message_id)
    SELECT DISTINCT CONVERT(uniqueidentifier, message_id) FROM OPENJSON(@message_ids) WITH (message_id nvarchar(36) '$');
END;
SET @now = SYSUTCDATETIME();
SELECT TOP (@limit) m.id AS fanout_found, LOWER(CONVERT(char(36), m.message_id)) AS message_id, m.target_broker
  FROM app.outbox_key_blocks AS w WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 INNER JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = w.block_id
 WHERE m.status IN (SELECT status FROM @wanted)
   AND w.reason = N'operator' AND w.wake_at = '9999-12-31' AND w.ordering_key IS NOT NULL
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (@by_id = 0 OR m.message_id IN (SELECT message_id FROM @ids))
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND (@key_prefix = N'' OR CASE WHEN DATALENGTH(@key_prefix) > 1024 THEN 0 ELSE CHARINDEX(@key_prefix, m.ordering_key) END = 1)
   AND (@refused = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                                THEN COALESCE(JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2, N'') ELSE N'' END <> @refused)
   AND (@waiting = 0 OR m.status <> N'pending' OR m.locked_until > @now OR m.available_at > @now
        OR m.deferred = 1 AND NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS own WITH (FORCESEEK) WHERE own.block_id = m.id)
                          AND NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS block WITH (INDEX(outbox_blocks_key), FORCESEEK)
                                           WHERE block.target_broker = m.target_broker AND block.key_hash = m.key_hash AND block.shard = m.shard
                                             AND block.ordering_key IS NOT NULL))
   AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
   AND (@unacknowledged = 0 OR m.last_error IS NULL OR LEFT(m.last_error, 21) <> N'{"acknowledged":true,')
 ORDER BY m.id
OPTION (RECOMPILE);

-- blocks_of
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @listed TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @listed (id)
SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$');
DECLARE @entries TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @entries (block_id, shard, operator, back)
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox_key_blocks AS w WITH (FORCESEEK) ON w.block_id = l.id
 UNION
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = l.id
 INNER JOIN app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
    ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.ordering_key IS NOT NULL;
SELECT w.block_id AS fanout_entry, N'' AS message_id, w.target_broker, COALESCE(w.ordering_key, N'') AS ordering_key, w.shard
     , e.operator, e.back
  FROM @entries AS e
 INNER JOIN app.outbox_key_blocks AS w WITH (FORCESEEK) ON w.block_id = e.block_id AND w.shard = e.shard;

-- blocks_of_key
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT w.block_id AS fanout_entry, N'' AS message_id, w.target_broker, w.ordering_key, w.shard
     , CONVERT(bit, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END) AS operator
     , CONVERT(bit, CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END) AS back
  FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
 WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
   AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', CONVERT(nvarchar(1024), @key)))
   AND DATALENGTH(w.ordering_key) = DATALENGTH(@key);

-- brokers
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @names TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @name nvarchar(128) = N'';
WHILE @name IS NOT NULL AND @most > 0
BEGIN
    SET @name = (SELECT MIN(later.target_broker)
                   FROM (SELECT MIN(target_broker) AS target_broker
                           FROM app.outbox WITH (INDEX(outbox_open), NOLOCK)
                          WHERE finished_at IS NULL AND deferred = 0 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM app.outbox WITH (INDEX(outbox_deferred_key), NOLOCK)
                          WHERE finished_at IS NULL AND deferred = 1 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM app.outbox WITH (INDEX(outbox_finished), NOLOCK)
                          WHERE finished_at IS NOT NULL AND target_broker > @name) AS later);
    IF @name IS NOT NULL
        INSERT INTO @names (name) VALUES (@name);
    SET @most = @most - 1;
END;
SELECT name AS fanout_broker FROM @names ORDER BY name;

-- clock
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT SYSUTCDATETIME() AS fanout_clock;

-- counts
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET @now = SYSUTCDATETIME();
SELECT target_broker AS fanout_counted
     , status
     , COUNT_BIG(*) AS row_count
     , DATEDIFF_BIG(MICROSECOND, MIN(created_at), @now) AS oldest
  FROM app.outbox WITH (NOLOCK)
 GROUP BY target_broker, status
 ORDER BY target_broker, status;

-- defer
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @blocking TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @leaving TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @waiting TABLE (
    id           bigint           NOT NULL PRIMARY KEY,
    message_id   uniqueidentifier NOT NULL,
    ordering_key nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL,
    until        datetime2(6)     NOT NULL,
    reason       nvarchar(16)     NOT NULL
);
DECLARE @deferred_rows int;
INSERT INTO @blocking (id) SELECT id FROM OPENJSON(@blocks) WITH (id bigint '$');
INSERT INTO @leaving (id) SELECT id FROM OPENJSON(@rows) WITH (id bigint '$');
BEGIN TRY
    BEGIN TRANSACTION;
    SET @found_version = NULL;
    SELECT @found_version = version
      FROM app.outbox_shards WITH (UPDLOCK, ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    IF @found_version IS NULL
    BEGIN
        SET @found_version = 0;
        INSERT INTO app.outbox_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
    END;
    IF @found_version <> @decided
        THROW 50123, N'what was decided about a shard of app.outbox has changed', 1;
    UPDATE s
       SET version = version + 1
      FROM app.outbox_shards AS s WITH (ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    SET @now = SYSUTCDATETIME();
    INSERT INTO @waiting (id, message_id, ordering_key, until, reason)
    SELECT m.id
         , m.message_id
         , CASE WHEN @unordered = 0 THEN m.ordering_key END
         , CASE WHEN m.available_at IS NULL OR m.locked_until >= m.available_at THEN m.locked_until ELSE m.available_at END
         , CASE WHEN m.available_at > @now THEN N'scheduled' ELSE N'backoff' END
      FROM @blocking AS b
     INNER JOIN app.outbox AS m WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = b.id
     WHERE m.status IN (N'pending', N'failed') AND m.deferred = 0 AND (m.locked_until > @now OR m.available_at > @now);
    SET @deferred_rows = @@ROWCOUNT;
    IF @deferred_rows <> (SELECT COUNT(*) FROM @blocking)
        THROW 50123, N'a row of app.outbox was changed while it was being deferred', 1;
    UPDATE w
       SET wake_at = b.until, reason = b.reason, ordering_key = COALESCE(w.ordering_key, b.ordering_key)
      FROM @waiting AS b
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = b.id AND w.shard = @shard;
    INSERT INTO app.outbox_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
    SELECT @broker, @shard, b.ordering_key, b.id, b.message_id, b.until, b.reason
      FROM @waiting AS b
     WHERE NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS w WITH (FORCESEEK) WHERE w.block_id = b.id AND w.shard = @shard);
    UPDATE m
       SET deferred = 1
      FROM @leaving AS l
     INNER JOIN app.outbox AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.status IN (N'pending', N'failed') AND m.deferred = 0;
    SET @deferred_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @deferred_rows AS fanout_deferred;

-- deferred_followers
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
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
                        FROM app.outbox AS p WITH (INDEX(outbox_deferred_key), FORCESEEK, NOLOCK)
                       WHERE p.target_broker = @broker AND p.key_hash = held.key_hash AND p.shard = held.shard AND p.id > held.id
                         AND p.deferred = 1 AND p.finished_at IS NULL) AS deferred_rows) AS behind;

-- diagnose
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT CONVERT(nvarchar(128), SERVERPROPERTY(N'ProductVersion')) AS fanout_version
     , CONVERT(int, SERVERPROPERTY(N'EngineEdition'))
     , CONVERT(int, d.compatibility_level)
     , CONVERT(nvarchar(128), DATABASEPROPERTYEX(d.name, N'Updateability'))
     , d.is_read_committed_snapshot_on
     , d.delayed_durability_desc
  FROM sys.databases AS d
 WHERE d.database_id = DB_ID();

-- discard
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @moved_rows int, @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
DECLARE @shards TABLE (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard         int           NOT NULL,
    PRIMARY KEY (target_broker, shard)
);
INSERT INTO @shards (target_broker, shard)
SELECT listed.broker, numbers.shard
  FROM (SELECT DISTINCT broker COLLATE Latin1_General_100_BIN2 AS broker FROM OPENJSON(@lock_brokers) WITH (broker nvarchar(128) '$')) AS listed
 CROSS JOIN (VALUES (0), (1), (2), (3)) AS numbers (shard);
INSERT INTO app.outbox_shards (target_broker, shard, version)
SELECT s.target_broker, s.shard, 0
  FROM @shards AS s
 WHERE NOT EXISTS (SELECT 1 FROM app.outbox_shards AS l WITH (FORCESEEK) WHERE l.target_broker = s.target_broker AND l.shard = s.shard);
UPDATE l
   SET version = l.version + 1
  FROM @shards AS s
 INNER JOIN app.outbox_shards AS l WITH (ROWLOCK, FORCESEEK) ON l.target_broker = s.target_broker AND l.shard = s.shard;
DECLARE @listed TABLE (
    id     bigint       NOT NULL PRIMARY KEY,
    shard  int          NOT NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    waits  bit          NOT NULL,
    behind bit          NOT NULL
);
DECLARE @seen TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @listed (id, shard, status, waits, behind)
SELECT id, shard, status, waits, behind
  FROM OPENJSON(@rows) WITH (id bigint '$.id', shard int '$.shard', status nvarchar(16) '$.status', waits bit '$.waits', behind bit '$.behind');
INSERT INTO @seen (block_id, shard, operator, back)
SELECT block_id, shard, operator, back
  FROM OPENJSON(@known) WITH (block_id bigint '$.id', shard int '$.shard', operator bit '$.operator', back bit '$.back');
SET @now = SYSUTCDATETIME();
IF (SELECT COUNT(*)
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.shard = l.shard AND m.status = l.status AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
       AND (m.status <> N'pending' OR l.waits = CASE WHEN m.locked_until > @now OR m.available_at > @now THEN 1 ELSE 0 END))
   <> (SELECT COUNT(*) FROM @listed)
    THROW 50123, N'a row of app.outbox that an operator acts on has changed', 1;
DECLARE @entries TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @entries (block_id, shard, operator, back)
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox_key_blocks AS w WITH (FORCESEEK) ON w.block_id = l.id
 UNION
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = l.id
 INNER JOIN app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
    ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.ordering_key IS NOT NULL;
IF EXISTS (SELECT block_id, shard, operator, back FROM @entries EXCEPT SELECT block_id, shard, operator, back FROM @seen)
   OR EXISTS (SELECT block_id, shard, operator, back FROM @seen EXCEPT SELECT block_id, shard, operator, back FROM @entries)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
DELETE w
  FROM (SELECT block_id, shard FROM OPENJSON(@forgotten) WITH (block_id bigint '$.id', shard int '$.shard')) AS gone
 INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = gone.block_id AND w.shard = gone.shard
 WHERE COALESCE(w.ordering_key, N'') = N'';
DECLARE @moved TABLE (block_id bigint NOT NULL, shard int NOT NULL, to_id bigint NOT NULL, operator bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @moved (block_id, shard, to_id, operator)
SELECT block_id, shard, to_id, operator
  FROM OPENJSON(@moves) WITH (block_id bigint '$.id', shard int '$.shard', to_id bigint '$.to', operator bit '$.operator');
UPDATE w
   SET block_id         = v.to_id
     , block_message_id = COALESCE(m.message_id, w.block_message_id)
     , wake_at          = NULL
     , reason           = N'backoff'
  FROM @moved AS v
 INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = v.block_id AND w.shard = v.shard
  LEFT JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = NULLIF(v.to_id, v.block_id)
 WHERE w.ordering_key IS NOT NULL AND v.operator = CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END;
SET @moved_rows = @@ROWCOUNT;
IF @moved_rows <> (SELECT COUNT(*) FROM @moved)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
    DELETE m
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @operated_rows AS fanout_operated;

-- entries
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET @now = SYSUTCDATETIME();
SELECT found.shard AS fanout_entry, COALESCE(found.ordering_key, N'') AS ordering_key, found.block_id, CONVERT(bit, found.operator) AS operator
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT blocked.shard, blocked.ordering_key, blocked.block_id, blocked.reason, 1 AS operator
                FROM (SELECT TOP (@limit) g.shard, g.ordering_key, g.block_id, g.reason
                        FROM app.outbox_key_blocks AS g WITH (INDEX(outbox_blocks_wake), FORCESEEK, NOLOCK)
                       WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at = '9999-12-31') AS blocked
              UNION ALL
              SELECT timed.shard, timed.ordering_key, timed.block_id, timed.reason, 0
                FROM (SELECT TOP (@limit) g.shard, g.ordering_key, g.block_id, g.reason
                        FROM app.outbox_key_blocks AS g WITH (INDEX(outbox_blocks_wake), FORCESEEK, NOLOCK)
                       WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at > @now AND g.wake_at < '9999-12-31'
                       ORDER BY g.wake_at) AS timed) AS found
 WHERE CASE WHEN found.operator = 1 THEN CASE WHEN found.reason = N'operator' AND found.ordering_key IS NOT NULL THEN 1 ELSE 0 END
            WHEN found.reason = N'scheduled' THEN 1 ELSE 0 END = 1;

-- errors_of
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT m.id AS fanout_row, m.last_error
  FROM (SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$')) AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = l.id;

-- exclusive
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @lock);
EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;
SELECT @granted AS fanout_granted;

-- facts
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @named TABLE (name nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL, owner nvarchar(300) COLLATE Latin1_General_100_BIN2 NOT NULL);
INSERT INTO @named (name, owner) SELECT [value], CASE [key] WHEN N'0' THEN N'' ELSE CONCAT(N' of ', [value]) END FROM OPENJSON(@tables);
SELECT CONCAT(N'table ', t.name) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.objects AS o ON o.object_id = OBJECT_ID(t.name)
  LEFT JOIN sys.tables AS d ON d.object_id = o.object_id
 CROSS APPLY (VALUES (N'kind', CASE o.type WHEN 'U' THEN N'table' ELSE o.type_desc COLLATE Latin1_General_100_BIN2 END)
                   , (N'lock escalation', d.lock_escalation_desc COLLATE Latin1_General_100_BIN2)
                   , (N'definitions', CASE HAS_PERMS_BY_NAME(t.name, N'OBJECT', N'VIEW DEFINITION') WHEN 0 THEN N'hidden' END)
             ) AS p (property, value)
 WHERE p.value IS NOT NULL;
SELECT CONCAT(N'column ', c.name COLLATE Latin1_General_100_BIN2, t.owner) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.columns AS c ON c.object_id = OBJECT_ID(t.name)
  JOIN sys.types AS y ON y.user_type_id = c.user_type_id
  LEFT JOIN sys.default_constraints AS d ON d.object_id = c.default_object_id
  LEFT JOIN sys.identity_columns AS i ON i.object_id = c.object_id AND i.column_id = c.column_id
  LEFT JOIN sys.computed_columns AS x ON x.object_id = c.object_id AND x.column_id = c.column_id
 CROSS APPLY (SELECT CASE WHEN c.max_length = -1 THEN N'(max)'
                          WHEN y.name LIKE N'n%char' THEN CONCAT(N'(', c.max_length / 2, N')')
                          WHEN y.name LIKE N'%char' OR y.name LIKE N'%binary' THEN CONCAT(N'(', c.max_length, N')')
                          WHEN y.name LIKE N'datetime2' OR y.name LIKE N'datetimeoffset' OR y.name LIKE N'time' THEN CONCAT(N'(', c.scale, N')')
                          ELSE N'' END) AS l (length)
 CROSS APPLY (VALUES (N'type', CASE c.is_computed WHEN 0 THEN CONCAT(y.name COLLATE Latin1_General_100_BIN2, l.length) END)
                   , (N'collation', CASE c.is_computed WHEN 0 THEN c.collation_name COLLATE Latin1_General_100_BIN2 END)
                   , (N'nullable', CASE c.is_nullable WHEN 1 THEN N'yes' ELSE N'no' END)
                   , (N'identity', CASE c.is_identity WHEN 1 THEN CONCAT(N'by ', CONVERT(bigint, i.increment_value)) END)
                   , (N'default', CASE WHEN c.default_object_id <> 0 THEN COALESCE(d.definition COLLATE Latin1_General_100_BIN2, NCHAR(63)) END)
                   , (N'generated', CASE c.is_computed WHEN 1 THEN COALESCE(x.definition COLLATE Latin1_General_100_BIN2, NCHAR(63)) END)
                   , (N'persisted', CASE x.is_persisted WHEN 1 THEN N'yes' WHEN 0 THEN N'no' END)
             ) AS p (property, value)
 WHERE p.value IS NOT NULL;
SELECT CONCAT(N'constraint ', k.name COLLATE Latin1_General_100_BIN2) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.check_constraints AS k ON k.parent_object_id = OBJECT_ID(t.name)
 CROSS APPLY (VALUES (N'check', COALESCE(k.definition COLLATE Latin1_General_100_BIN2, NCHAR(63)))
                   , (N'enabled', CASE k.is_disabled WHEN 0 THEN N'yes' ELSE N'no' END)
                   , (N'trusted', CASE k.is_not_trusted WHEN 0 THEN N'yes' ELSE N'no' END)
             ) AS p (property, value);
SELECT CONCAT(N'index ', i.name COLLATE Latin1_General_100_BIN2) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.indexes AS i ON i.object_id = OBJECT_ID(t.name) AND i.name IS NOT NULL
 CROSS APPLY (VALUES (N'kind', i.type_desc COLLATE Latin1_General_100_BIN2)
                   , (N'unique', CASE i.is_unique WHEN 1 THEN N'yes' ELSE N'no' END)
                   , (N'columns', STUFF((SELECT CONCAT(N', ', c.name COLLATE Latin1_General_100_BIN2, CASE x.is_descending_key WHEN 1 THEN N' DESC' END)
                                           FROM sys.index_columns AS x
                                           JOIN sys.columns AS c ON c.object_id = x.object_id AND c.column_id = x.column_id
                                          WHERE x.object_id = i.object_id AND x.index_id = i.index_id AND x.key_ordinal > 0
                                          ORDER BY x.key_ordinal
                                            FOR XML PATH(N'')), 1, 2, N''))
                   , (N'included', STUFF((SELECT CONCAT(N', ', c.name COLLATE Latin1_General_100_BIN2)
                                            FROM sys.index_columns AS x
                                            JOIN sys.columns AS c ON c.object_id = x.object_id AND c.column_id = x.column_id
                                           WHERE x.object_id = i.object_id AND x.index_id = i.index_id AND x.is_included_column = 1
                                           ORDER BY c.name COLLATE Latin1_General_100_BIN2
                                             FOR XML PATH(N'')), 1, 2, N''))
                   , (N'predicate', CASE i.has_filter WHEN 1 THEN COALESCE(i.filter_definition COLLATE Latin1_General_100_BIN2, NCHAR(63)) END)
                   , (N'enabled', CASE i.is_disabled WHEN 0 THEN N'yes' ELSE N'no' END)
             ) AS p (property, value)
 WHERE p.value IS NOT NULL;

-- failed_keys
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT TOP (@limit) f.ordering_key AS fanout_failed
     , f.id
     , LOWER(CONVERT(char(36), f.message_id)) AS message_id
     , f.status
     , N'backoff' AS reason
     , f.created_at AS since
     , COALESCE(f.locked_until, SYSUTCDATETIME()) AS until_at
     , CONVERT(bit, 1) AS failed
     , f.last_error
     , f.shard
  FROM (SELECT m.id, m.ordering_key, m.message_id, m.status, m.created_at, m.locked_until, m.last_error, m.shard
             , ROW_NUMBER() OVER (PARTITION BY m.key_hash, m.shard ORDER BY m.id) AS place
          FROM (SELECT TOP (2000) i.id
                  FROM app.outbox AS i WITH (INDEX(outbox_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE i.target_broker = @broker AND i.last_error IS NOT NULL AND i.finished_at IS NULL
                 ORDER BY i.id) AS failing
         INNER JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = failing.id
         WHERE m.status = N'failed' AND m.deferred = 0 AND m.ordering_key IS NOT NULL) AS f
 WHERE f.place = 1
 ORDER BY f.id;

-- find
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @found TABLE (id bigint NOT NULL PRIMARY KEY, message_id uniqueidentifier NOT NULL, target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @wanted TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @ids TABLE (message_id uniqueidentifier NOT NULL PRIMARY KEY);
DECLARE @by_id bit = 0, @open bit = 0, @published bit = 0, @abandoned bit = 0;
INSERT INTO @wanted (status)
SELECT DISTINCT status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$');
IF EXISTS (SELECT 1 FROM @wanted WHERE status IN (N'pending', N'processing', N'failed'))
    SET @open = 1;
IF EXISTS (SELECT 1 FROM @wanted WHERE status = N'published')
    SET @published = 1;
IF EXISTS (SELECT 1 FROM @wanted WHERE status = N'abandoned')
    SET @abandoned = 1;
IF @message_ids <> N'[]'
BEGIN
    SELECT @by_id = 1, @open = 0, @published = 0, @abandoned = 0;
    INSERT INTO @ids (message_id)
    SELECT DISTINCT CONVERT(uniqueidentifier, message_id) FROM OPENJSON(@message_ids) WITH (message_id nvarchar(36) '$');
END;
SET @now = SYSUTCDATETIME();
INSERT INTO @found (id, message_id, target_broker)
SELECT TOP (@limit) m.id, m.message_id, m.target_broker
  FROM (SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @open = 1 AND finished_at IS NULL AND deferred = 0 AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_deferred_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @open = 1 AND finished_at IS NULL AND deferred = 1 AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @published = 1 AND finished_at IS NOT NULL AND status = N'published' AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @abandoned = 1 AND finished_at IS NOT NULL AND status = N'abandoned' AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT t.id, t.message_id, t.target_broker, t.status, t.type, t.ordering_key, t.aggregate_type, t.aggregate_id, t.correlation_id, t.tenant_id, t.last_error, t.created_at, t.locked_until, t.available_at, t.deferred, t.shard, t.key_hash
          FROM @ids AS i
         INNER JOIN app.outbox AS t WITH (INDEX(outbox_once), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
            ON t.message_id = i.message_id
         WHERE @by_id = 1 AND (@broker = N'' OR t.target_broker = @broker)) AS m
 WHERE m.status IN (SELECT status FROM @wanted)
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND (@key_prefix = N'' OR CASE WHEN DATALENGTH(@key_prefix) > 1024 THEN 0 ELSE CHARINDEX(@key_prefix, m.ordering_key) END = 1)
   AND (@refused = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                                THEN COALESCE(JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2, N'') ELSE N'' END <> @refused)
   AND (@waiting = 0 OR m.status <> N'pending' OR m.locked_until > @now OR m.available_at > @now
        OR m.deferred = 1 AND NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS own WITH (FORCESEEK) WHERE own.block_id = m.id)
                          AND NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS block WITH (INDEX(outbox_blocks_key), FORCESEEK)
                                           WHERE block.target_broker = m.target_broker AND block.key_hash = m.key_hash AND block.shard = m.shard
                                             AND block.ordering_key IS NOT NULL))
   AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
   AND (@unacknowledged = 0 OR m.last_error IS NULL OR LEFT(m.last_error, 21) <> N'{"acknowledged":true,')
 ORDER BY m.id
OPTION (RECOMPILE);
SELECT id AS fanout_found, LOWER(CONVERT(char(36), message_id)) AS message_id, target_broker FROM @found ORDER BY id;

-- finished_brokers
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @names TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @name nvarchar(128) = N'';
WHILE @name IS NOT NULL AND @most > 0
BEGIN
    SET @name = (SELECT MIN(target_broker)
                   FROM app.outbox WITH (INDEX(outbox_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                  WHERE finished_at IS NOT NULL AND target_broker > @name);
    IF @name IS NOT NULL
        INSERT INTO @names (name) VALUES (@name);
    SET @most = @most - 1;
END;
SELECT name AS fanout_broker FROM @names ORDER BY name;

-- followers
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
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
                        FROM app.outbox AS p WITH (INDEX(outbox_deferred_key), FORCESEEK, NOLOCK)
                       WHERE p.target_broker = @broker AND p.key_hash = f.key_hash AND p.shard = f.shard AND p.id > f.id
                         AND p.deferred = 1 AND p.finished_at IS NULL) AS deferred_rows) AS deferred_part
 CROSS APPLY (SELECT COALESCE(SUM(CASE WHEN o.ordering_key = f.ordering_key AND DATALENGTH(o.ordering_key) = DATALENGTH(f.ordering_key) THEN 1 ELSE 0 END), 0) AS followers
                   , COUNT_BIG(*) AS looked
                FROM (SELECT TOP (5000) n.ordering_key
                        FROM app.outbox AS n WITH (INDEX(outbox_open), FORCESEEK, NOLOCK)
                       WHERE n.target_broker = @broker AND n.shard = f.shard AND n.id > f.id AND n.finished_at IS NULL AND n.deferred = 0
                       ORDER BY n.id) AS o) AS behind;

-- forget_instances
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DELETE FROM app.outbox_instances WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE seen_at < DATEADD(DAY, -1, SYSUTCDATETIME());
SELECT @@ROWCOUNT AS fanout_forgotten;

-- heartbeat
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
UPDATE i
   SET name = @name, host = @host, pid = @pid, version = @version, work = @work, seen_at = SYSUTCDATETIME()
  FROM app.outbox_instances AS i WITH (ROWLOCK, FORCESEEK)
 WHERE i.instance_id = CONVERT(uniqueidentifier, @instance_id);
IF @@ROWCOUNT = 0
    INSERT INTO app.outbox_instances (instance_id, name, host, pid, version, work)
    VALUES (CONVERT(uniqueidentifier, @instance_id), @name, @host, @pid, @version, @work);
SELECT 1 AS fanout_seen;

-- instances
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT LOWER(CONVERT(char(36), instance_id)) AS fanout_instance
     , name
     , host
     , pid
     , version
     , started_at
     , seen_at
     , work
     , CONVERT(bit, CASE WHEN seen_at < DATEADD(DAY, -1, SYSUTCDATETIME()) THEN 1 ELSE 0 END) AS old
     , SYSUTCDATETIME() AS now
  FROM app.outbox_instances
 ORDER BY started_at, instance_id;

-- key_blocks
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT TOP (@limit) w.ordering_key AS fanout_block
     , w.block_id
     , LOWER(CONVERT(char(36), w.block_message_id)) AS message_id
     , COALESCE(m.status, N'abandoned') AS status
     , w.reason
     , w.since
     , CASE WHEN w.wake_at <> '9999-12-31' THEN w.wake_at END AS until_at
     , CONVERT(bit, 0) AS failed
     , CONVERT(nvarchar(max), NULL) AS last_error
     , w.shard
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT TOP (2000) g.block_id, g.shard, g.ordering_key, g.key_hash, g.block_message_id, g.wake_at, g.reason, g.since
                FROM app.outbox_key_blocks AS g WITH (INDEX(outbox_blocks_wake), FORCESEEK, NOLOCK)
               WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at IS NOT NULL
               ORDER BY g.wake_at DESC) AS w
  LEFT JOIN app.outbox AS m WITH (FORCESEEK, NOLOCK) ON m.id = w.block_id
 WHERE w.ordering_key IS NOT NULL
   AND (w.wake_at = '9999-12-31' OR (m.id IS NOT NULL AND m.finished_at IS NULL))
 ORDER BY CASE WHEN w.wake_at = '9999-12-31' THEN 0 ELSE 1 END, w.since, w.block_id;

-- key_heads
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET @now = SYSUTCDATETIME();
SELECT head.ordering_key AS fanout_head, head.id, head.claimed
  FROM (SELECT TOP (1000) m.ordering_key, m.id
             , CONVERT(bit, CASE WHEN m.status = N'processing' AND (m.locked_until > @now OR m.available_at > @now) THEN 1 ELSE 0 END) AS claimed
          FROM app.outbox AS m WITH (INDEX(outbox_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0
         ORDER BY m.id) AS head
 WHERE head.ordering_key IN (SELECT asked.name FROM OPENJSON(@keys) WITH (name nvarchar(512) COLLATE Latin1_General_100_BIN2 '$') AS asked);

-- last_errors
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT m.target_broker AS fanout_failed
     , m.last_error
  FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY target_broker ORDER BY happened DESC, id DESC) AS place
          FROM (SELECT id
                     , target_broker
                     , CASE WHEN ISJSON(last_error) = 1
                            THEN JSON_VALUE(last_error, '$.at') COLLATE Latin1_General_100_BIN2 END AS happened
                  FROM app.outbox WITH (READCOMMITTEDLOCK, READPAST)
                 WHERE last_error IS NOT NULL AND status <> N'published') AS failed) AS ranked
 INNER JOIN app.outbox AS m WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON m.id = ranked.id
 WHERE ranked.place = 1 AND m.last_error IS NOT NULL
 ORDER BY m.target_broker;

-- leave
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DELETE FROM app.outbox_instances WHERE instance_id = CONVERT(uniqueidentifier, @instance_id);
SELECT 1 AS fanout_left;

-- lift
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @changed TABLE (id bigint NOT NULL, kind int NOT NULL, block_id bigint NULL);
INSERT INTO @changed (id, kind, block_id)
SELECT id, kind, block_id
  FROM OPENJSON(@changes) WITH (id bigint '$.i', kind int '$.k', block_id bigint '$.b');
BEGIN TRY
    BEGIN TRANSACTION;
    SET @found_version = NULL;
    SELECT @found_version = version
      FROM app.outbox_shards WITH (UPDLOCK, ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    IF @found_version IS NULL
    BEGIN
        SET @found_version = 0;
        INSERT INTO app.outbox_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
    END;
    IF @found_version <> @decided
        THROW 50123, N'what was decided about a shard of app.outbox has changed', 1;
    UPDATE s
       SET version = version + 1
      FROM app.outbox_shards AS s WITH (ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    SET @now = SYSUTCDATETIME();
    UPDATE m
       SET deferred = CASE WHEN c.kind = 2 THEN 1 ELSE 0 END
      FROM @changed AS c
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
     WHERE c.kind = 2 AND m.status IN (N'pending', N'failed') OR c.kind IN (1, 4, 5) AND m.deferred = 1;
    DELETE w
      FROM @changed AS c
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = c.id
     WHERE c.kind = 3 AND w.shard = @shard OR c.kind IN (1, 4, 5) AND w.ordering_key IS NULL;
    UPDATE w
       SET wake_at = CASE WHEN c.kind = 1 THEN NULL
                          WHEN m.available_at IS NULL OR m.locked_until >= m.available_at THEN COALESCE(m.locked_until, @now)
                          ELSE m.available_at END
      FROM @changed AS c
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = c.id
     INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = c.id
     WHERE c.kind = 1 OR c.kind = 2 AND m.deferred = 1;
    UPDATE w
       SET block_id = m.id, block_message_id = m.message_id
      FROM @changed AS c
     INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = c.id
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = c.block_id AND w.shard = @shard
     WHERE c.kind = 5;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;

-- list_abandoned
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @seen TABLE (
    place  bigint       NOT NULL PRIMARY KEY,
    id     bigint       NOT NULL,
    at     datetime2(6) NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL
);
DECLARE @after_at datetime2(6) = CASE WHEN @after = N'' THEN '9999-12-31T23:59:59.999999' ELSE CONVERT(datetime2(6), @after, 126) END;
INSERT INTO @seen (place, id, at)
SELECT ROW_NUMBER() OVER (ORDER BY f.finished_at DESC, f.id DESC), f.id, f.finished_at
  FROM (SELECT TOP (@scan + 1) ended.id, ended.finished_at
          FROM (SELECT tied.id, tied.finished_at
                  FROM (SELECT TOP (@scan + 1) m.id, m.finished_at
                          FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL
                           AND m.finished_at = @after_at AND m.id < @after_id
                         ORDER BY m.id DESC) AS tied
                 UNION ALL
                SELECT older.id, older.finished_at
                  FROM (SELECT TOP (@scan + 1) m.id, m.finished_at
                          FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL AND m.finished_at < @after_at
                         ORDER BY m.finished_at DESC, m.id DESC) AS older) AS ended
         ORDER BY ended.finished_at DESC, ended.id DESC) AS f;
SELECT TOP (@limit + 2) s.place AS fanout_place
     , tested.matches
     , s.at AS position
     , s.id
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM @seen AS s
  LEFT JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON m.id = s.id AND (s.status IS NULL OR s.status = @status)
 CROSS APPLY (SELECT CONVERT(bit, CASE WHEN m.status = @status
                                        AND m.target_broker = @broker
                                        AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
                                        THEN 1 ELSE 0 END) AS matches) AS tested
 WHERE tested.matches = 1 OR s.place >= @scan OR s.place = (SELECT MAX(place) FROM @seen)
 ORDER BY s.place;

-- list_failed
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @seen TABLE (
    place  bigint       NOT NULL PRIMARY KEY,
    id     bigint       NOT NULL,
    at     datetime2(6) NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL
);
INSERT INTO @seen (place, id)
SELECT ROW_NUMBER() OVER (ORDER BY f.id DESC), f.id
  FROM (SELECT TOP (@scan + 1) m.id
          FROM app.outbox AS m WITH (INDEX(outbox_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL AND m.id < @after_id
         ORDER BY m.id DESC) AS f;
SELECT TOP (@limit + 2) s.place AS fanout_place
     , tested.matches
     , s.at AS position
     , s.id
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM @seen AS s
  LEFT JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON m.id = s.id AND (s.status IS NULL OR s.status = @status)
 CROSS APPLY (SELECT CONVERT(bit, CASE WHEN m.status = @status
                                        AND m.target_broker = @broker
                                        AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
                                        THEN 1 ELSE 0 END) AS matches) AS tested
 WHERE tested.matches = 1 OR s.place >= @scan OR s.place = (SELECT MAX(place) FROM @seen)
 ORDER BY s.place;

-- list_pending
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @seen TABLE (
    place  bigint       NOT NULL PRIMARY KEY,
    id     bigint       NOT NULL,
    at     datetime2(6) NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL
);
INSERT INTO @seen (place, id, status)
SELECT ROW_NUMBER() OVER (ORDER BY o.id DESC), o.id, o.status
  FROM (SELECT TOP (@scan + 1) entry.id, entry.status
          FROM (SELECT head.id, head.status
                  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
                 CROSS APPLY (SELECT TOP (@scan + 1) m.id, m.status
                                FROM app.outbox AS m WITH (INDEX(outbox_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.id < @after_id
                                 AND m.finished_at IS NULL AND m.deferred = 0
                               ORDER BY m.id DESC) AS head
                 UNION ALL
                SELECT deferred.id, CONVERT(nvarchar(16), NULL) COLLATE Latin1_General_100_BIN2
                  FROM (SELECT TOP (@scan + 1) m.id
                          FROM app.outbox AS m WITH (INDEX(outbox_deferred), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.id < @after_id
                           AND m.deferred = 1 AND m.finished_at IS NULL
                         ORDER BY m.id DESC) AS deferred) AS entry
         ORDER BY entry.id DESC) AS o;
SELECT TOP (@limit + 2) s.place AS fanout_place
     , tested.matches
     , s.at AS position
     , s.id
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM @seen AS s
  LEFT JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON m.id = s.id AND (s.status IS NULL OR s.status = @status)
 CROSS APPLY (SELECT CONVERT(bit, CASE WHEN m.status = @status
                                        AND m.target_broker = @broker
                                        AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
                                        THEN 1 ELSE 0 END) AS matches) AS tested
 WHERE tested.matches = 1 OR s.place >= @scan OR s.place = (SELECT MAX(place) FROM @seen)
 ORDER BY s.place;

-- list_processing
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @seen TABLE (
    place  bigint       NOT NULL PRIMARY KEY,
    id     bigint       NOT NULL,
    at     datetime2(6) NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL
);
INSERT INTO @seen (place, id, status)
SELECT ROW_NUMBER() OVER (ORDER BY o.id DESC), o.id, o.status
  FROM (SELECT TOP (@scan + 1) entry.id, entry.status
          FROM (SELECT head.id, head.status
                  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
                 CROSS APPLY (SELECT TOP (@scan + 1) m.id, m.status
                                FROM app.outbox AS m WITH (INDEX(outbox_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.id < @after_id
                                 AND m.finished_at IS NULL AND m.deferred = 0
                               ORDER BY m.id DESC) AS head) AS entry
         ORDER BY entry.id DESC) AS o;
SELECT TOP (@limit + 2) s.place AS fanout_place
     , tested.matches
     , s.at AS position
     , s.id
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM @seen AS s
  LEFT JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON m.id = s.id AND (s.status IS NULL OR s.status = @status)
 CROSS APPLY (SELECT CONVERT(bit, CASE WHEN m.status = @status
                                        AND m.target_broker = @broker
                                        AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
                                        THEN 1 ELSE 0 END) AS matches) AS tested
 WHERE tested.matches = 1 OR s.place >= @scan OR s.place = (SELECT MAX(place) FROM @seen)
 ORDER BY s.place;

-- list_published
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @seen TABLE (
    place  bigint       NOT NULL PRIMARY KEY,
    id     bigint       NOT NULL,
    at     datetime2(6) NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL
);
DECLARE @after_at datetime2(6) = CASE WHEN @after = N'' THEN '9999-12-31T23:59:59.999999' ELSE CONVERT(datetime2(6), @after, 126) END;
INSERT INTO @seen (place, id, at)
SELECT ROW_NUMBER() OVER (ORDER BY f.finished_at DESC, f.id DESC), f.id, f.finished_at
  FROM (SELECT TOP (@scan + 1) ended.id, ended.finished_at
          FROM (SELECT tied.id, tied.finished_at
                  FROM (SELECT TOP (@scan + 1) m.id, m.finished_at
                          FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL
                           AND m.finished_at = @after_at AND m.id < @after_id
                         ORDER BY m.id DESC) AS tied
                 UNION ALL
                SELECT older.id, older.finished_at
                  FROM (SELECT TOP (@scan + 1) m.id, m.finished_at
                          FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL AND m.finished_at < @after_at
                         ORDER BY m.finished_at DESC, m.id DESC) AS older) AS ended
         ORDER BY ended.finished_at DESC, ended.id DESC) AS f;
SELECT TOP (@limit + 2) s.place AS fanout_place
     , tested.matches
     , s.at AS position
     , s.id
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM @seen AS s
  LEFT JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON m.id = s.id AND (s.status IS NULL OR s.status = @status)
 CROSS APPLY (SELECT CONVERT(bit, CASE WHEN m.status = @status
                                        AND m.target_broker = @broker
                                        AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
                                        THEN 1 ELSE 0 END) AS matches) AS tested
 WHERE tested.matches = 1 OR s.place >= @scan OR s.place = (SELECT MAX(place) FROM @seen)
 ORDER BY s.place;

-- matches
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @found TABLE (id bigint NOT NULL PRIMARY KEY, message_id uniqueidentifier NOT NULL, target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @wanted TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @ids TABLE (message_id uniqueidentifier NOT NULL PRIMARY KEY);
DECLARE @by_id bit = 0, @open bit = 0, @published bit = 0, @abandoned bit = 0;
INSERT INTO @wanted (status)
SELECT DISTINCT status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$');
IF EXISTS (SELECT 1 FROM @wanted WHERE status IN (N'pending', N'processing', N'failed'))
    SET @open = 1;
IF EXISTS (SELECT 1 FROM @wanted WHERE status = N'published')
    SET @published = 1;
IF EXISTS (SELECT 1 FROM @wanted WHERE status = N'abandoned')
    SET @abandoned = 1;
IF @message_ids <> N'[]'
BEGIN
    SELECT @by_id = 1, @open = 0, @published = 0, @abandoned = 0;
    INSERT INTO @ids (message_id)
    SELECT DISTINCT CONVERT(uniqueidentifier, message_id) FROM OPENJSON(@message_ids) WITH (message_id nvarchar(36) '$');
END;
SET @now = SYSUTCDATETIME();
INSERT INTO @found (id, message_id, target_broker)
SELECT TOP (@limit) m.id, m.message_id, m.target_broker
  FROM (SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @open = 1 AND finished_at IS NULL AND deferred = 0 AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_deferred_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @open = 1 AND finished_at IS NULL AND deferred = 1 AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @published = 1 AND finished_at IS NOT NULL AND status = N'published' AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM app.outbox WITH (INDEX(outbox_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @abandoned = 1 AND finished_at IS NOT NULL AND status = N'abandoned' AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT t.id, t.message_id, t.target_broker, t.status, t.type, t.ordering_key, t.aggregate_type, t.aggregate_id, t.correlation_id, t.tenant_id, t.last_error, t.created_at, t.locked_until, t.available_at, t.deferred, t.shard, t.key_hash
          FROM @ids AS i
         INNER JOIN app.outbox AS t WITH (INDEX(outbox_once), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
            ON t.message_id = i.message_id
         WHERE @by_id = 1 AND (@broker = N'' OR t.target_broker = @broker)) AS m
 WHERE m.status IN (SELECT status FROM @wanted)
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND (@key_prefix = N'' OR CASE WHEN DATALENGTH(@key_prefix) > 1024 THEN 0 ELSE CHARINDEX(@key_prefix, m.ordering_key) END = 1)
   AND (@refused = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                                THEN COALESCE(JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2, N'') ELSE N'' END <> @refused)
   AND (@waiting = 0 OR m.status <> N'pending' OR m.locked_until > @now OR m.available_at > @now
        OR m.deferred = 1 AND NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS own WITH (FORCESEEK) WHERE own.block_id = m.id)
                          AND NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS block WITH (INDEX(outbox_blocks_key), FORCESEEK)
                                           WHERE block.target_broker = m.target_broker AND block.key_hash = m.key_hash AND block.shard = m.shard
                                             AND block.ordering_key IS NOT NULL))
   AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
   AND (@unacknowledged = 0 OR m.last_error IS NULL OR LEFT(m.last_error, 21) <> N'{"acknowledged":true,')
 ORDER BY m.id
OPTION (RECOMPILE);
SELECT COUNT(*) AS fanout_matches FROM @found;

-- message
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
     , CASE WHEN DATALENGTH(m.payload) <= @shown THEN m.payload END AS payload
     , COALESCE(m.headers, N'') AS headers
  FROM app.outbox AS m WITH (INDEX(outbox_once), FORCESEEK, ROWLOCK)
 WHERE m.message_id = CONVERT(uniqueidentifier, @message_id)
 ORDER BY m.target_broker;

-- migrate
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
EXEC @granted = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0
    THROW 50122, N'another process has been migrating app.outbox for a minute', 1;
IF OBJECT_ID(N'app.outbox_migrations') IS NULL
    CREATE TABLE app.outbox_migrations (
        version    int           NOT NULL CONSTRAINT outbox_migrations_pkey PRIMARY KEY,
        name       nvarchar(128) NOT NULL,
        applied_at datetime2(6)  NOT NULL CONSTRAINT outbox_migrations_default_applied_at DEFAULT SYSUTCDATETIME()
    );

-- move_blocks
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @moved_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
DECLARE @shards TABLE (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard         int           NOT NULL,
    PRIMARY KEY (target_broker, shard)
);
INSERT INTO @shards (target_broker, shard)
SELECT listed.broker, numbers.shard
  FROM (SELECT DISTINCT broker COLLATE Latin1_General_100_BIN2 AS broker FROM OPENJSON(@lock_brokers) WITH (broker nvarchar(128) '$')) AS listed
 CROSS JOIN (VALUES (0), (1), (2), (3)) AS numbers (shard);
INSERT INTO app.outbox_shards (target_broker, shard, version)
SELECT s.target_broker, s.shard, 0
  FROM @shards AS s
 WHERE NOT EXISTS (SELECT 1 FROM app.outbox_shards AS l WITH (FORCESEEK) WHERE l.target_broker = s.target_broker AND l.shard = s.shard);
UPDATE l
   SET version = l.version + 1
  FROM @shards AS s
 INNER JOIN app.outbox_shards AS l WITH (ROWLOCK, FORCESEEK) ON l.target_broker = s.target_broker AND l.shard = s.shard;
DECLARE @moved TABLE (block_id bigint NOT NULL, shard int NOT NULL, to_id bigint NOT NULL, operator bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @moved (block_id, shard, to_id, operator)
SELECT block_id, shard, to_id, operator
  FROM OPENJSON(@moves) WITH (block_id bigint '$.id', shard int '$.shard', to_id bigint '$.to', operator bit '$.operator');
UPDATE w
   SET block_id         = v.to_id
     , block_message_id = COALESCE(m.message_id, w.block_message_id)
     , wake_at          = NULL
     , reason           = N'backoff'
  FROM @moved AS v
 INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = v.block_id AND w.shard = v.shard
  LEFT JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = NULLIF(v.to_id, v.block_id)
 WHERE w.ordering_key IS NOT NULL AND v.operator = CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END;
SET @moved_rows = @@ROWCOUNT;
IF @moved_rows <> (SELECT COUNT(*) FROM @moved)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @moved_rows AS fanout_moved;

-- overview
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @heads TABLE (shard int NOT NULL, status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL, row_count bigint NOT NULL, scheduled bigint NOT NULL);
DECLARE @deferred_rows TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL, created_at datetime2(6) NOT NULL);
DECLARE @failing TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @look bigint = CASE WHEN @limit < 20000 THEN 20000 ELSE @limit + 1 END;
DECLARE @deferred_count bigint, @failing_rows bigint, @failed_rows bigint, @oldest datetime2(6), @cut bit;
SET @now = SYSUTCDATETIME();
INSERT INTO @heads (shard, status, row_count, scheduled)
SELECT shards.shard, head.status, COUNT_BIG(*), SUM(CASE WHEN head.status <> N'processing' AND head.available_at > @now THEN 1 ELSE 0 END)
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT TOP (@look) m.status, m.available_at
                FROM app.outbox AS m WITH (INDEX(outbox_open), FORCESEEK, NOLOCK)
               WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0
               ORDER BY m.id) AS head
 GROUP BY shards.shard, head.status;
INSERT INTO @deferred_rows (status, created_at)
SELECT m.status, m.created_at
  FROM (SELECT TOP (@limit + 1) p.id
          FROM app.outbox AS p WITH (INDEX(outbox_deferred_key), FORCESEEK, NOLOCK)
         WHERE p.target_broker = @broker AND p.deferred = 1 AND p.finished_at IS NULL) AS deferred
 INNER JOIN app.outbox AS m WITH (FORCESEEK, NOLOCK) ON m.id = deferred.id;
SET @deferred_count = @@ROWCOUNT;
SET @cut = CASE WHEN @deferred_count > @limit OR EXISTS (SELECT 1 FROM @heads GROUP BY shard HAVING SUM(row_count) >= @look) THEN 1 ELSE 0 END;
INSERT INTO @failing (id)
SELECT TOP (@limit + 1) m.id
  FROM app.outbox AS m WITH (INDEX(outbox_failing), FORCESEEK, NOLOCK)
 WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
 ORDER BY m.id DESC;
SET @failing_rows = @@ROWCOUNT;
SET @failed_rows = (SELECT COALESCE(SUM(h.row_count), 0) FROM @heads AS h WHERE h.status = N'failed')
                 + (SELECT COUNT_BIG(*) FROM @deferred_rows AS a WHERE a.status = N'failed');
IF @cut = 1
    SET @failed_rows = (SELECT CASE WHEN @failed_rows < COUNT_BIG(*) THEN COUNT_BIG(*) ELSE @failed_rows END
                          FROM @failing AS i
                         INNER JOIN app.outbox AS m WITH (FORCESEEK, NOLOCK) ON m.id = i.id
                         WHERE m.status = N'failed');
SET @oldest = (SELECT MIN(o.created_at)
            FROM (SELECT first_rows.created_at
                    FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
                   CROSS APPLY (SELECT TOP (100) m.created_at
                                  FROM app.outbox AS m WITH (INDEX(outbox_open), FORCESEEK, NOLOCK)
                                 WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0
                                 ORDER BY m.id) AS first_rows
                   UNION ALL
                  SELECT created_at FROM @deferred_rows) AS o);
SELECT (SELECT COALESCE(SUM(h.row_count), 0) FROM @heads AS h WHERE h.status = N'pending')
       + (SELECT COUNT_BIG(*) FROM @deferred_rows AS a WHERE a.status = N'pending') AS fanout_pending
     , @cut AS more_pending
     , (SELECT COALESCE(SUM(h.row_count), 0) FROM @heads AS h WHERE h.status = N'processing') AS processing
     , @cut AS more_processing
     , @failed_rows AS failed
     , CONVERT(bit, CASE WHEN @cut = 1 AND @failing_rows > @limit THEN 1 ELSE 0 END) AS more_failed
     , (SELECT COUNT_BIG(*)
          FROM (SELECT TOP (@limit + 1) m.id
                  FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.status = N'published' AND m.finished_at IS NOT NULL) AS some_rows) AS published
     , (SELECT COUNT_BIG(*)
          FROM (SELECT TOP (@limit + 1) m.id
                  FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.status = N'abandoned' AND m.finished_at IS NOT NULL) AS some_rows) AS abandoned
     , @deferred_count AS deferred
     , CASE WHEN @oldest < @now THEN DATEDIFF_BIG(MICROSECOND, @oldest, @now) ELSE 0 END AS age
     , (SELECT TOP (1) m.published_at
          FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, NOLOCK)
         WHERE m.target_broker = @broker AND m.status = N'published' AND m.finished_at IS NOT NULL
         ORDER BY m.finished_at DESC) AS last_published
     , (SELECT TOP (1) e.last_error
          FROM (SELECT f.id, f.last_error
                  FROM (SELECT TOP (1000) m.id, m.last_error
                          FROM app.outbox AS m WITH (INDEX(outbox_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                         ORDER BY m.id DESC) AS f
                 UNION ALL
                SELECT a.id, a.last_error
                  FROM (SELECT TOP (100) m.id, m.last_error
                          FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = N'abandoned' AND m.finished_at IS NOT NULL
                         ORDER BY m.finished_at DESC, m.id DESC) AS a
                 WHERE a.last_error IS NOT NULL) AS e
         ORDER BY CASE WHEN ISJSON(e.last_error) = 1 THEN JSON_VALUE(e.last_error, '$.at') COLLATE Latin1_General_100_BIN2 END DESC, e.id DESC) AS last_error
     , (SELECT COALESCE(SUM(h.scheduled), 0) FROM @heads AS h) AS scheduled
     , (SELECT COUNT_BIG(*)
          FROM (SELECT TOP (@limit + 1) m.last_error
                  FROM app.outbox AS m WITH (INDEX(outbox_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE m.target_broker = @broker AND m.status = N'abandoned' AND m.finished_at IS NOT NULL
                 ORDER BY m.finished_at DESC) AS newest
         WHERE newest.last_error IS NULL OR LEFT(newest.last_error, 21) <> N'{"acknowledged":true,') AS unacknowledged;

-- pause
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
INSERT INTO app.outbox_pauses (target_broker, paused_by, reason)
SELECT @broker, @by, @reason
 WHERE NOT EXISTS (SELECT 1 FROM app.outbox_pauses WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE target_broker = @broker);
SELECT @@ROWCOUNT AS fanout_paused;

-- pauses
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT target_broker AS fanout_pause, since, paused_by, reason
  FROM app.outbox_pauses WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 ORDER BY target_broker;

-- pick
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET @now = SYSUTCDATETIME();
SELECT m.id AS fanout_picked, N'' AS message_id, m.target_broker, COALESCE(m.ordering_key, N'') AS ordering_key, m.shard, m.status
     , CONVERT(bit, CASE WHEN m.status <> N'processing' AND (m.locked_until > @now OR m.available_at > @now) THEN 1 ELSE 0 END) AS waits
     , m.deferred
  FROM (SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$')) AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = l.id
 WHERE m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31'
 ORDER BY m.id;

-- purge_abandoned
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @before datetime2(6);
SET @now = SYSUTCDATETIME();
SET @before = DATEADD(MICROSECOND, -@retention_micros, DATEADD(SECOND, -@retention_seconds, @now));
WITH victims AS (
    SELECT TOP (@limit) status, finished_at
      FROM app.outbox AS m WITH (INDEX(outbox_finished), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND status = N'abandoned' AND finished_at IS NOT NULL AND finished_at <= @before
       AND NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS w WITH (FORCESEEK)
                        WHERE w.block_id = m.id AND w.reason = N'operator' AND w.wake_at = '9999-12-31')
     ORDER BY finished_at
)
DELETE FROM victims
 WHERE status = N'abandoned' AND finished_at <= @before;
SELECT @@ROWCOUNT AS fanout_removed;

-- purge_published
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @before datetime2(6);
SET @now = SYSUTCDATETIME();
SET @before = DATEADD(MICROSECOND, -@retention_micros, DATEADD(SECOND, -@retention_seconds, @now));
WITH victims AS (
    SELECT TOP (@limit) status, finished_at
      FROM app.outbox AS m WITH (INDEX(outbox_finished), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND status = N'published' AND finished_at IS NOT NULL AND finished_at <= @before
     ORDER BY finished_at
)
DELETE FROM victims
 WHERE status = N'published' AND finished_at <= @before;
SELECT @@ROWCOUNT AS fanout_removed;

-- ready
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET @now = SYSUTCDATETIME();
IF EXISTS (SELECT 1 FROM app.outbox_pauses WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE target_broker = @broker)
    SELECT -1 AS fanout_shard;
ELSE
SELECT shards.shard AS fanout_shard
  FROM (VALUES (0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 1024), (11, 2048)) AS shards (shard, bit)
 WHERE @busy & shards.bit = 0
   AND (EXISTS (SELECT 1
                 FROM (SELECT TOP (20000) m.locked_until, m.available_at
                         FROM app.outbox AS m WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                        WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0
                        ORDER BY m.id) AS head
                WHERE (head.locked_until IS NULL OR head.locked_until <= @now)
                  AND (head.available_at IS NULL OR head.available_at <= @now))
    OR (SELECT COUNT(*)
          FROM (SELECT TOP (20000) m.id
                  FROM app.outbox AS m WITH (INDEX(outbox_open), NOLOCK)
                 WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0) AS head) = 20000
    OR EXISTS (SELECT 1
                 FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_wake), NOLOCK)
                WHERE w.target_broker = @broker AND w.shard = shards.shard AND w.wake_at <= @now)
    OR EXISTS (SELECT 1
                 FROM (SELECT TOP (500) w.block_id
                         FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_wake), NOLOCK)
                        WHERE w.target_broker = @broker AND w.shard = shards.shard AND w.wake_at IS NULL
                        ORDER BY w.block_id) AS block
                 LEFT JOIN app.outbox AS m WITH (NOLOCK, FORCESEEK) ON m.id = block.block_id
                WHERE m.id IS NULL OR m.finished_at IS NOT NULL))
 ORDER BY shards.shard;

-- record
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
INSERT INTO app.outbox_migrations (version, name) VALUES (@version, @name);

-- release
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @lock);
EXEC @granted = sp_releaseapplock @Resource = @resource, @LockOwner = 'Session';
SELECT @granted AS fanout_granted;

-- renew
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @leased TABLE (id bigint NOT NULL, late bit NOT NULL);
DECLARE @renewed_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
    SET @found_version = NULL;
    SELECT @found_version = version
      FROM app.outbox_shards WITH (UPDLOCK, ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    IF @found_version IS NULL
    BEGIN
        SET @found_version = 0;
        INSERT INTO app.outbox_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
    END;
    SET @now = SYSUTCDATETIME();
    INSERT INTO @leased (id, late)
    SELECT id, CASE WHEN locked_until <= @now THEN 1 ELSE 0 END
      FROM app.outbox WITH (INDEX(outbox_open), NOLOCK)
     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
       AND id BETWEEN @first AND @last
       AND lock_token = CONVERT(uniqueidentifier, @token) AND status = N'processing';
    IF EXISTS (SELECT 1 FROM @leased WHERE late = 1)
    BEGIN
    UPDATE s
       SET version = version + 1
      FROM app.outbox_shards AS s WITH (ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    END;
    UPDATE m
       SET locked_until = DATEADD(MICROSECOND, @lease_micros, DATEADD(SECOND, @lease_seconds, @now))
      FROM @leased AS l
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @token) AND m.status = N'processing';
    SET @renewed_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @renewed_rows AS fanout_renewed;

-- replica
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT CONVERT(nvarchar(128), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) AS fanout_updateability;

-- requeue
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @moved_rows int, @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
DECLARE @shards TABLE (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard         int           NOT NULL,
    PRIMARY KEY (target_broker, shard)
);
INSERT INTO @shards (target_broker, shard)
SELECT listed.broker, numbers.shard
  FROM (SELECT DISTINCT broker COLLATE Latin1_General_100_BIN2 AS broker FROM OPENJSON(@lock_brokers) WITH (broker nvarchar(128) '$')) AS listed
 CROSS JOIN (VALUES (0), (1), (2), (3)) AS numbers (shard);
INSERT INTO app.outbox_shards (target_broker, shard, version)
SELECT s.target_broker, s.shard, 0
  FROM @shards AS s
 WHERE NOT EXISTS (SELECT 1 FROM app.outbox_shards AS l WITH (FORCESEEK) WHERE l.target_broker = s.target_broker AND l.shard = s.shard);
UPDATE l
   SET version = l.version + 1
  FROM @shards AS s
 INNER JOIN app.outbox_shards AS l WITH (ROWLOCK, FORCESEEK) ON l.target_broker = s.target_broker AND l.shard = s.shard;
DECLARE @listed TABLE (
    id     bigint       NOT NULL PRIMARY KEY,
    shard  int          NOT NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    waits  bit          NOT NULL,
    behind bit          NOT NULL
);
DECLARE @seen TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @listed (id, shard, status, waits, behind)
SELECT id, shard, status, waits, behind
  FROM OPENJSON(@rows) WITH (id bigint '$.id', shard int '$.shard', status nvarchar(16) '$.status', waits bit '$.waits', behind bit '$.behind');
INSERT INTO @seen (block_id, shard, operator, back)
SELECT block_id, shard, operator, back
  FROM OPENJSON(@known) WITH (block_id bigint '$.id', shard int '$.shard', operator bit '$.operator', back bit '$.back');
SET @now = SYSUTCDATETIME();
IF (SELECT COUNT(*)
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.shard = l.shard AND m.status = l.status AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
       AND (m.status <> N'pending' OR l.waits = CASE WHEN m.locked_until > @now OR m.available_at > @now THEN 1 ELSE 0 END))
   <> (SELECT COUNT(*) FROM @listed)
    THROW 50123, N'a row of app.outbox that an operator acts on has changed', 1;
DECLARE @entries TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @entries (block_id, shard, operator, back)
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox_key_blocks AS w WITH (FORCESEEK) ON w.block_id = l.id
 UNION
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = l.id
 INNER JOIN app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
    ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.ordering_key IS NOT NULL;
IF EXISTS (SELECT block_id, shard, operator, back FROM @entries EXCEPT SELECT block_id, shard, operator, back FROM @seen)
   OR EXISTS (SELECT block_id, shard, operator, back FROM @seen EXCEPT SELECT block_id, shard, operator, back FROM @entries)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
DELETE w
  FROM (SELECT block_id, shard FROM OPENJSON(@forgotten) WITH (block_id bigint '$.id', shard int '$.shard')) AS gone
 INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = gone.block_id AND w.shard = gone.shard
 WHERE COALESCE(w.ordering_key, N'') = N'';
DECLARE @moved TABLE (block_id bigint NOT NULL, shard int NOT NULL, to_id bigint NOT NULL, operator bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @moved (block_id, shard, to_id, operator)
SELECT block_id, shard, to_id, operator
  FROM OPENJSON(@moves) WITH (block_id bigint '$.id', shard int '$.shard', to_id bigint '$.to', operator bit '$.operator');
UPDATE w
   SET block_id         = v.to_id
     , block_message_id = COALESCE(m.message_id, w.block_message_id)
     , wake_at          = NULL
     , reason           = N'backoff'
  FROM @moved AS v
 INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = v.block_id AND w.shard = v.shard
  LEFT JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = NULLIF(v.to_id, v.block_id)
 WHERE w.ordering_key IS NOT NULL AND v.operator = CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END;
SET @moved_rows = @@ROWCOUNT;
IF @moved_rows <> (SELECT COUNT(*) FROM @moved)
    THROW 50123, N'a key block of app.outbox that an operator acts on has changed', 1;
    UPDATE m
       SET status       = N'pending'
         , published_at = NULL
         , finished_at  = NULL
         , available_at = NULL
         , expires_at   = CASE WHEN @ttl_seconds > 0 OR @ttl_micros > 0
                               THEN DATEADD(MICROSECOND, @ttl_micros, DATEADD(SECOND, @ttl_seconds, @now))
                               WHEN m.expires_at > @now THEN m.expires_at END
         , locked_until = NULL
         , locked_by    = NULL
         , lock_token   = NULL
         , attempts     = 0
         , crashes      = 0
         , isolated     = 0
         , deferred     = l.behind
      FROM @listed AS l
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @operated_rows AS fanout_operated;

-- resume
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DELETE FROM app.outbox_pauses WITH (ROWLOCK) WHERE target_broker = @broker;
SELECT @@ROWCOUNT AS fanout_resumed;

-- rights
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT CONCAT(needs.wanted, N' ON ', t.[value]) AS fanout_forbidden
  FROM OPENJSON(@tables) AS t
 CROSS JOIN (VALUES (1, N'SELECT'), (2, N'INSERT'), (3, N'UPDATE'), (4, N'DELETE')) AS needs (n, wanted)
 WHERE OBJECT_ID(t.[value]) IS NOT NULL AND HAS_PERMS_BY_NAME(t.[value], N'OBJECT', needs.wanted) = 0
 ORDER BY CONVERT(int, t.[key]), needs.n;

-- search_aggregate
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_aggregate = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.aggregate_id = @term AND DATALENGTH(m.aggregate_id) = DATALENGTH(@term) AND (@aggregate_type = N'' OR m.aggregate_type = @aggregate_type AND DATALENGTH(m.aggregate_type) = DATALENGTH(@aggregate_type))
   AND m.id < @after_id AND (@broker = N'' OR m.target_broker = @broker)
 ORDER BY m.id DESC;

-- search_aggregate in lists
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_aggregate = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.aggregate_id = @term AND DATALENGTH(m.aggregate_id) = DATALENGTH(@term) AND (@aggregate_type = N'' OR m.aggregate_type = @aggregate_type AND DATALENGTH(m.aggregate_type) = DATALENGTH(@aggregate_type))
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND m.status IN (SELECT wanted.status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$') AS wanted)
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND (CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 > @after_rank
        OR CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 = @after_rank
           AND (@after = N'' AND m.finished_at IS NOT NULL OR m.finished_at < CONVERT(datetime2(6), @after, 126) OR (m.finished_at IS NULL OR m.finished_at = CONVERT(datetime2(6), @after, 126)) AND m.id < @after_row)))
 ORDER BY m.target_broker, CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
, m.finished_at DESC, m.id DESC;

-- search_causation
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_causation = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.causation_id = @term AND DATALENGTH(m.causation_id) = DATALENGTH(@term)
   AND m.id < @after_id AND (@broker = N'' OR m.target_broker = @broker)
 ORDER BY m.id DESC;

-- search_causation in lists
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_causation = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.causation_id = @term AND DATALENGTH(m.causation_id) = DATALENGTH(@term)
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND m.status IN (SELECT wanted.status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$') AS wanted)
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND (CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 > @after_rank
        OR CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 = @after_rank
           AND (@after = N'' AND m.finished_at IS NOT NULL OR m.finished_at < CONVERT(datetime2(6), @after, 126) OR (m.finished_at IS NULL OR m.finished_at = CONVERT(datetime2(6), @after, 126)) AND m.id < @after_row)))
 ORDER BY m.target_broker, CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
, m.finished_at DESC, m.id DESC;

-- search_correlation
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_correlation = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.correlation_id = @term AND DATALENGTH(m.correlation_id) = DATALENGTH(@term)
   AND m.id < @after_id AND (@broker = N'' OR m.target_broker = @broker)
 ORDER BY m.id DESC;

-- search_correlation in lists
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_correlation = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.correlation_id = @term AND DATALENGTH(m.correlation_id) = DATALENGTH(@term)
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND m.status IN (SELECT wanted.status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$') AS wanted)
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND (CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 > @after_rank
        OR CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 = @after_rank
           AND (@after = N'' AND m.finished_at IS NOT NULL OR m.finished_at < CONVERT(datetime2(6), @after, 126) OR (m.finished_at IS NULL OR m.finished_at = CONVERT(datetime2(6), @after, 126)) AND m.id < @after_row)))
 ORDER BY m.target_broker, CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
, m.finished_at DESC, m.id DESC;

-- search_key
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_key = BINARY_CHECKSUM(CONVERT(nvarchar(512), CASE CHARINDEX(N'::', @term) WHEN 0 THEN @term ELSE SUBSTRING(@term, CHARINDEX(N'::', @term) + 2, 512) END)) AND (m.ordering_key = @term AND DATALENGTH(m.ordering_key) = DATALENGTH(@term) OR CHARINDEX(N'::', @term) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @term AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@term))
   AND m.id < @after_id AND (@broker = N'' OR m.target_broker = @broker)
 ORDER BY m.id DESC;

-- search_key in lists
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_key = BINARY_CHECKSUM(CONVERT(nvarchar(512), CASE CHARINDEX(N'::', @term) WHEN 0 THEN @term ELSE SUBSTRING(@term, CHARINDEX(N'::', @term) + 2, 512) END)) AND (m.ordering_key = @term AND DATALENGTH(m.ordering_key) = DATALENGTH(@term) OR CHARINDEX(N'::', @term) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @term AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@term))
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND m.status IN (SELECT wanted.status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$') AS wanted)
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND (CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 > @after_rank
        OR CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 = @after_rank
           AND (@after = N'' AND m.finished_at IS NOT NULL OR m.finished_at < CONVERT(datetime2(6), @after, 126) OR (m.finished_at IS NULL OR m.finished_at = CONVERT(datetime2(6), @after, 126)) AND m.id < @after_row)))
 ORDER BY m.target_broker, CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
, m.finished_at DESC, m.id DESC;

-- search_tenant
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_tenant = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.tenant_id = @term AND DATALENGTH(m.tenant_id) = DATALENGTH(@term)
   AND m.id < @after_id AND (@broker = N'' OR m.target_broker = @broker)
 ORDER BY m.id DESC;

-- search_tenant in lists
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_tenant = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.tenant_id = @term AND DATALENGTH(m.tenant_id) = DATALENGTH(@term)
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND m.status IN (SELECT wanted.status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$') AS wanted)
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND (CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 > @after_rank
        OR CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 = @after_rank
           AND (@after = N'' AND m.finished_at IS NOT NULL OR m.finished_at < CONVERT(datetime2(6), @after, 126) OR (m.finished_at IS NULL OR m.finished_at = CONVERT(datetime2(6), @after, 126)) AND m.id < @after_row)))
 ORDER BY m.target_broker, CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
, m.finished_at DESC, m.id DESC;

-- search_trace
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_trace = BINARY_CHECKSUM(CONVERT(nvarchar(32), @term)) AND SUBSTRING(m.headers, CHARINDEX(N'"traceparent":"00-', m.headers) + 18, 32) = @term AND CHARINDEX(N'"traceparent":"00-', m.headers) > 0
   AND m.id < @after_id AND (@broker = N'' OR m.target_broker = @broker)
 ORDER BY m.id DESC;

-- search_trace in lists
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_trace = BINARY_CHECKSUM(CONVERT(nvarchar(32), @term)) AND SUBSTRING(m.headers, CHARINDEX(N'"traceparent":"00-', m.headers) + 18, 32) = @term AND CHARINDEX(N'"traceparent":"00-', m.headers) > 0
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND m.status IN (SELECT wanted.status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$') AS wanted)
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND (CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 > @after_rank
        OR CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 = @after_rank
           AND (@after = N'' AND m.finished_at IS NOT NULL OR m.finished_at < CONVERT(datetime2(6), @after, 126) OR (m.finished_at IS NULL OR m.finished_at = CONVERT(datetime2(6), @after, 126)) AND m.id < @after_row)))
 ORDER BY m.target_broker, CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
, m.finished_at DESC, m.id DESC;

-- search_type
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_type = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.type = @term AND DATALENGTH(m.type) = DATALENGTH(@term)
   AND m.id < @after_id AND (@broker = N'' OR m.target_broker = @broker)
 ORDER BY m.id DESC;

-- search_type in lists
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
  FROM app.outbox AS m
 WITH (INDEX(outbox_search))
 WHERE m.search_type = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.type = @term AND DATALENGTH(m.type) = DATALENGTH(@term)
   AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
   AND m.status IN (SELECT wanted.status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$') AS wanted)
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND (CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 > @after_rank
        OR CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
 = @after_rank
           AND (@after = N'' AND m.finished_at IS NOT NULL OR m.finished_at < CONVERT(datetime2(6), @after, 126) OR (m.finished_at IS NULL OR m.finished_at = CONVERT(datetime2(6), @after, 126)) AND m.id < @after_row)))
 ORDER BY m.target_broker, CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
, m.finished_at DESC, m.id DESC;

-- states
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @asked TABLE (
    id            bigint        NOT NULL PRIMARY KEY,
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_hash      binary(32)    NULL,
    shard         int           NOT NULL,
    until_at      datetime2(7)  NULL,
    scheduled     bit           NOT NULL
);
SET @now = SYSUTCDATETIME();
INSERT INTO @asked (id, target_broker, key_hash, shard, until_at, scheduled)
SELECT m.id, m.target_broker, m.key_hash, m.shard
     , CASE WHEN m.available_at IS NULL OR m.locked_until > m.available_at THEN m.locked_until ELSE m.available_at END
     , CASE WHEN m.available_at > @now THEN 1 ELSE 0 END
  FROM (SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$')) AS l
 INNER JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = l.id;
SELECT a.id AS fanout_state
     , CASE WHEN a.until_at >= '9999-12-31' THEN 2 WHEN a.until_at > @now THEN 1 ELSE 0 END AS time
     , a.scheduled
     , CONVERT(bit, CASE WHEN EXISTS (SELECT 1 FROM app.outbox_pauses AS pause WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE pause.target_broker = a.target_broker)
                         THEN 1 ELSE 0 END) AS paused
     , CASE WHEN own.block_id IS NULL THEN 0 WHEN own.wake_at IS NULL THEN 3 WHEN own.wake_at >= '9999-12-31' THEN 4 WHEN own.wake_at > @now THEN 1 ELSE 2 END AS own_wake
     , own.reason AS own_reason
     , CASE WHEN own.wake_at < '9999-12-31' THEN own.wake_at END AS own_until
     , own.since AS own_since
     , CASE WHEN block.block_id IS NULL THEN 0 WHEN block.wake_at IS NULL THEN 3 WHEN block.wake_at >= '9999-12-31' THEN 4 WHEN block.wake_at > @now THEN 1 ELSE 2 END AS wake
     , block.reason
     , block.block_id
     , LOWER(CONVERT(char(36), block.block_message_id)) AS message_id
     , CASE WHEN block.wake_at < '9999-12-31' THEN block.wake_at END AS until_at
     , block.since
     , CONVERT(bit, CASE WHEN block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL) THEN 1 ELSE 0 END) AS done
     , CONVERT(bit, CASE WHEN block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL)
                              AND EXISTS (SELECT 1
                                            FROM app.outbox AS f WITH (INDEX(outbox_deferred_key), FORCESEEK, NOLOCK)
                                           WHERE f.target_broker = a.target_broker AND f.key_hash = a.key_hash AND f.shard = a.shard AND f.deferred = 1
                                             AND f.finished_at IS NULL AND f.id < a.id)
                         THEN 1 ELSE 0 END) AS earlier_deferred
  FROM @asked AS a
  LEFT JOIN app.outbox_key_blocks AS own WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON own.block_id = a.id
  LEFT JOIN app.outbox_key_blocks AS block WITH (INDEX(outbox_blocks_key), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON block.target_broker = a.target_broker AND block.key_hash = a.key_hash AND block.shard = a.shard AND block.ordering_key IS NOT NULL AND block.block_id <> a.id
  LEFT JOIN app.outbox AS b WITH (FORCESEEK, NOLOCK) ON b.id = block.block_id;

-- stranded
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
SELECT CONVERT(bit, found.page) AS fanout_page, m.id, LOWER(CONVERT(char(36), m.message_id)) AS message_id, m.status, m.type, m.ordering_key, m.shard, m.deferred
     , m.created_at
  FROM (SELECT head.id, 0 AS page
          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
         CROSS APPLY (SELECT TOP (1000) o.id, o.locked_until, o.available_at
                        FROM app.outbox AS o WITH (INDEX(outbox_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                       WHERE o.target_broker = @broker AND o.shard = shards.shard AND o.finished_at IS NULL AND o.deferred = 0 AND @heads = 1
                       ORDER BY o.id) AS head
         WHERE head.locked_until >= '9999-12-31' OR head.available_at >= '9999-12-31'
        UNION ALL
        SELECT deferred.id, 1
          FROM (SELECT TOP (@limit) d.id
                  FROM app.outbox AS d WITH (INDEX(outbox_deferred), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE d.target_broker = @broker AND d.deferred = 1 AND d.finished_at IS NULL AND d.id > @after_id
                 ORDER BY d.id) AS deferred) AS found
 INNER JOIN app.outbox AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = found.id;

-- take
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @chosen TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY);
BEGIN TRY
    BEGIN TRANSACTION;
    IF @unordered = 0
    BEGIN
    SET @found_version = NULL;
    SELECT @found_version = version
      FROM app.outbox_shards WITH (UPDLOCK, ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    IF @found_version IS NULL
    BEGIN
        SET @found_version = 0;
        INSERT INTO app.outbox_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
    END;
    IF @found_version <> @decided
        THROW 50123, N'what was decided about a shard of app.outbox has changed', 1;
    END;
    SET @now = SYSUTCDATETIME();
    INSERT INTO @chosen (id)
    SELECT id FROM OPENJSON(@ids) WITH (id bigint '$');
    IF @unordered = 1
        DELETE FROM @chosen
         WHERE id NOT IN (SELECT m.id
                            FROM @chosen AS c
                           INNER JOIN app.outbox AS m WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = c.id);
    UPDATE m
       SET status       = N'processing'
         , locked_by    = CONVERT(nvarchar(256), @worker)
         , lock_token   = CONVERT(uniqueidentifier, @token)
         , locked_until = DATEADD(MICROSECOND, @lease_micros, DATEADD(SECOND, @lease_seconds, @now))
         , attempts     = m.attempts + CASE WHEN m.status = N'processing' AND m.isolated = 1 AND m.attempts < 1048575 THEN 1 ELSE 0 END
         , crashes      = m.crashes + CASE WHEN m.status = N'processing' AND m.crashes < 1048575 THEN 1 ELSE 0 END
         , isolated     = CASE WHEN @shared = 0 AND (SELECT COUNT(*) FROM @chosen) = 1 THEN 1 ELSE 0 END
    OUTPUT inserted.id INTO @claimed
      FROM @chosen AS c
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
     WHERE m.status IN (N'pending', N'failed', N'processing') AND m.deferred = 0
       AND (m.locked_until IS NULL OR m.locked_until <= @now)
       AND (m.available_at IS NULL OR m.available_at <= @now);
    IF @unordered = 0 AND (SELECT COUNT(*) FROM @claimed) <> (SELECT COUNT(*) FROM @chosen)
        THROW 50123, N'a row of app.outbox was changed while it was being claimed', 1;
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT COUNT(*) AS fanout_taken FROM @claimed;
SELECT m.id AS fanout_id
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.stream
     , m.type
     , COALESCE(m.ordering_key, N'') AS ordering_key
     , m.priority
     , m.content_type
     , COALESCE(m.headers, N'') AS headers
     , COALESCE(m.correlation_id, N'') AS correlation_id
     , m.attempts
     , m.crashes
     , m.created_at
     , CASE WHEN m.expires_at <= @now THEN -1
            WHEN m.expires_at < DATEADD(year, 10, @now) THEN DATEDIFF_BIG(microsecond, @now, m.expires_at) ELSE 0 END AS expires_in
     , CASE WHEN DATALENGTH(m.payload) <= @most THEN m.payload ELSE 0x END AS payload
     , CASE WHEN DATALENGTH(m.payload) > @most THEN DATALENGTH(m.payload) ELSE 0 END AS unread
  FROM @claimed AS c
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = c.id
 WHERE m.lock_token = CONVERT(uniqueidentifier, @token)
 ORDER BY m.id;

-- window
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @simple bit = 0, @bytes bigint = 9223372036854775807;
DECLARE @blocked bit = 0;
DECLARE @settled TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @win TABLE (
    id           bigint        NOT NULL,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    held         bit           NOT NULL,
    leased       bit           NOT NULL,
    waits        bit           NOT NULL,
    crashes      int           NOT NULL,
    block_id     bigint        NULL
);
BEGIN TRY
    BEGIN TRANSACTION;
    SET @found_version = NULL;
    SELECT @found_version = version
      FROM app.outbox_shards WITH (UPDLOCK, ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    IF @found_version IS NULL
    BEGIN
        SET @found_version = 0;
        INSERT INTO app.outbox_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
    END;
    SET @now = SYSUTCDATETIME();
        INSERT INTO @settled (id)
        SELECT TOP (@window) id
          FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
         ORDER BY id;
        SET @blocked = CASE WHEN EXISTS (SELECT 1
                                         FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake), NOLOCK)
                                        WHERE target_broker = @broker) THEN 1 ELSE 0 END;
        INSERT INTO @win (id, ordering_key, held, leased, waits, crashes, block_id)
        SELECT TOP (@window) m.id
             , m.ordering_key
             , CASE WHEN s.id IS NULL THEN 1 ELSE 0 END
             , CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
             , CASE WHEN m.locked_until > @now OR m.available_at > @now THEN 1 ELSE 0 END
             , m.crashes
             , CASE WHEN @blocked = 1
                    THEN (SELECT w.block_id
                            FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
                           WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                             AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', m.ordering_key)) AND w.shard = @shard) END
          FROM app.outbox AS m WITH (INDEX(outbox_open), NOLOCK)
          LEFT JOIN @settled AS s ON s.id = m.id
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0
         ORDER BY m.id;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @found_version AS fanout_window, @blocked AS blocked;
SELECT w.id AS fanout_row
     , COALESCE(w.ordering_key, N'') AS ordering_key
     , w.held
     , w.leased
     , w.waits
     , w.crashes
     , COALESCE(DATALENGTH(m.payload), 0) + COALESCE(DATALENGTH(m.headers), 0) AS bytes
     , w.block_id
  FROM @win AS w
  LEFT JOIN app.outbox AS m WITH (FORCESEEK, NOLOCK) ON m.id = w.id AND @bytes < 9223372036854775807
 WHERE @simple = 0
 ORDER BY w.id;

