-- applied
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
IF OBJECT_ID(N'app.outbox_migrations') IS NULL
    SELECT CONVERT(int, NULL) AS fanout_version;
ELSE
    SELECT version AS fanout_version FROM app.outbox_migrations ORDER BY version;

-- check
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
SELECT what AS fanout_missing
  FROM (SELECT 1 AS kind, N'table app.outbox' AS what
         WHERE OBJECT_ID(N'app.outbox') IS NULL
         UNION ALL
        SELECT 2, CONCAT(N'column ', needed.name)
          FROM OPENJSON(N'["id", "created_at", "available_at", "expires_at", "locked_until", "published_at", "finished_at",
                           "lock_token", "attempts", "crashes", "priority", "lane", "parked", "isolated", "message_id",
                           "status", "locked_by", "target_broker", "stream", "type", "ordering_key", "content_type",
                           "aggregate_type", "aggregate_id", "correlation_id", "causation_id", "tenant_id",
                           "broker_message_id", "headers", "last_error", "payload"]')
               WITH (name nvarchar(128) '$') AS needed
         WHERE OBJECT_ID(N'app.outbox') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.columns AS c
                            WHERE c.object_id = OBJECT_ID(N'app.outbox')
                              AND c.name = needed.name COLLATE Latin1_General_100_BIN2)
         UNION ALL
        SELECT 3, CONCAT(N'index ', needed.name)
          FROM (VALUES (N'outbox_pkey'), (N'outbox_once'), (N'outbox_open'), (N'outbox_finished')) AS needed (name)
         WHERE OBJECT_ID(N'app.outbox') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.indexes AS i
                            WHERE i.object_id = OBJECT_ID(N'app.outbox') AND i.name = needed.name AND i.is_disabled = 0)
       ) AS missing
 ORDER BY kind, what;

-- counts
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
SET @now = SYSUTCDATETIME();
SELECT target_broker AS fanout_counted
     , status
     , COUNT_BIG(*) AS row_count
     , DATEDIFF_BIG(MICROSECOND, MIN(created_at), @now) AS oldest
  FROM app.outbox WITH (NOLOCK)
 GROUP BY target_broker, status
 ORDER BY target_broker, status;

-- finished brokers
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @names TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @name nvarchar(128) = N'';
WHILE @name IS NOT NULL
BEGIN
    SET @name = (SELECT MIN(target_broker)
                   FROM app.outbox WITH (INDEX(outbox_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                  WHERE finished_at IS NOT NULL AND target_broker > @name);
    IF @name IS NOT NULL
        INSERT INTO @names (name) VALUES (@name);
END;
SELECT name AS fanout_broker FROM @names ORDER BY name;

-- last errors
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
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

-- migrate
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
EXEC @granted = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0
    THROW 50122, N'another process has been migrating app.outbox for a minute', 1;
IF OBJECT_ID(N'app.outbox_migrations') IS NULL
    CREATE TABLE app.outbox_migrations (
        version    int           NOT NULL CONSTRAINT outbox_migrations_pkey PRIMARY KEY,
        name       nvarchar(128) NOT NULL,
        applied_at datetime2(6)  NOT NULL CONSTRAINT outbox_migrations_default_applied_at DEFAULT SYSUTCDATETIME()
    );

-- purge abandoned
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @before datetime2(6);
SET @now = SYSUTCDATETIME();
SET @before = DATEADD(MICROSECOND, -@retention_micros, DATEADD(SECOND, -@retention_seconds, @now));
WITH victims AS (
    SELECT TOP (@limit) status, finished_at
      FROM app.outbox WITH (INDEX(outbox_finished), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND status = N'abandoned' AND finished_at IS NOT NULL AND finished_at <= @before
     ORDER BY finished_at
)
DELETE FROM victims
 WHERE status = N'abandoned' AND finished_at <= @before;
SELECT @@ROWCOUNT AS fanout_removed;

-- purge published
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @before datetime2(6);
SET @now = SYSUTCDATETIME();
SET @before = DATEADD(MICROSECOND, -@retention_micros, DATEADD(SECOND, -@retention_seconds, @now));
WITH victims AS (
    SELECT TOP (@limit) status, finished_at
      FROM app.outbox WITH (INDEX(outbox_finished), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
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
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
SET @now = SYSUTCDATETIME();
SELECT lanes.lane AS fanout_lane
  FROM (VALUES (0), (1), (2), (3)) AS lanes (lane)
 WHERE EXISTS (SELECT 1
                 FROM (SELECT TOP (128000) m.locked_until, m.available_at
                         FROM app.outbox AS m WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                        WHERE m.target_broker = @broker AND m.lane = lanes.lane AND m.finished_at IS NULL AND m.parked = 0
                        ORDER BY m.id) AS head
                WHERE (head.locked_until IS NULL OR head.locked_until <= @now)
                  AND (head.available_at IS NULL OR head.available_at <= @now))
 ORDER BY lanes.lane;

-- record
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
INSERT INTO app.outbox_migrations (version, name) VALUES (@version, @name);

-- release
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @lock);
EXEC @granted = sp_releaseapplock @Resource = @resource, @LockOwner = 'Session';
SELECT @granted AS fanout_granted;

-- renew
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @leased TABLE (id bigint NOT NULL);
DECLARE @renewed_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @claim_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
    IF @granted < 0
        THROW 50122, N'the lock of a lane of app.outbox was not granted in time', 1;
    SET @now = SYSUTCDATETIME();
    INSERT INTO @leased (id)
    SELECT id
      FROM app.outbox WITH (INDEX(outbox_open), NOLOCK)
     WHERE target_broker = @broker AND lane = @lane AND finished_at IS NULL AND parked = 0
       AND id BETWEEN @first AND @last
       AND lock_token = CONVERT(uniqueidentifier, @token) AND status = N'processing';
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
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
SELECT CONVERT(nvarchar(128), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) AS fanout_updateability;

-- take
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @lock);
EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;
SELECT @granted AS fanout_granted;

