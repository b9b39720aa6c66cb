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

-- backlog
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @behind TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, since datetime2(7) NULL);
DECLARE @name nvarchar(128) = N'';
SET @now = SYSUTCDATETIME();
WHILE @name IS NOT NULL
BEGIN
    SET @name = (SELECT MIN(target_broker)
                   FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                  WHERE finished_at IS NULL AND parked = 0 AND target_broker > @name);
    IF @name IS NOT NULL
        INSERT INTO @behind (name, since)
        SELECT @name, MIN(waiting.since)
          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS lanes (lane)
         OUTER APPLY (SELECT TOP (1) (SELECT MAX(times.at) FROM (VALUES (head.created_at), (head.available_at), (head.locked_until)) AS times (at)) AS since
                        FROM (SELECT TOP (1000) m.id, m.created_at, m.available_at, m.locked_until
                                FROM app.outbox AS m WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = @name AND m.lane = lanes.lane AND m.finished_at IS NULL AND m.parked = 0
                               ORDER BY m.id) AS head
                       WHERE (head.locked_until IS NULL OR head.locked_until <= @now)
                         AND (head.available_at IS NULL OR head.available_at <= @now)
                       ORDER BY head.id) AS waiting;
END;
SELECT name AS fanout_behind, CASE WHEN since < @now THEN DATEDIFF_BIG(MICROSECOND, since, @now) ELSE 0 END
  FROM @behind
 ORDER BY name;

-- check
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
SELECT what AS fanout_missing
  FROM (SELECT 1 AS kind, CONCAT(N'table ', needed.name) AS what
          FROM (VALUES (N'app.outbox'), (N'app.outbox_waiting')) AS needed (name)
         WHERE OBJECT_ID(needed.name) IS NULL
         UNION ALL
        SELECT 2, CONCAT(N'column ', needed.name)
          FROM OPENJSON(N'["id", "created_at", "available_at", "expires_at", "locked_until", "published_at", "finished_at",
                           "lock_token", "attempts", "crashes", "priority", "lane", "parked", "isolated", "message_id",
                           "status", "locked_by", "target_broker", "stream", "type", "ordering_key", "content_type",
                           "aggregate_type", "aggregate_id", "correlation_id", "causation_id", "tenant_id",
                           "broker_message_id", "headers", "last_error", "payload", "key_hash"]')
               WITH (name nvarchar(128) '$') AS needed
         WHERE OBJECT_ID(N'app.outbox') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.columns AS c
                            WHERE c.object_id = OBJECT_ID(N'app.outbox')
                              AND c.name = needed.name COLLATE Latin1_General_100_BIN2)
         UNION ALL
        SELECT 3, CONCAT(N'column outbox_waiting.', needed.name)
          FROM OPENJSON(N'["target_broker", "lane", "ordering_key", "gate_id", "gate_message_id", "wake_at", "reason", "since",
                           "key_hash"]')
               WITH (name nvarchar(128) '$') AS needed
         WHERE OBJECT_ID(N'app.outbox_waiting') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.columns AS c
                            WHERE c.object_id = OBJECT_ID(N'app.outbox_waiting')
                              AND c.name = needed.name COLLATE Latin1_General_100_BIN2)
         UNION ALL
        SELECT 4, CONCAT(N'index ', needed.name)
          FROM (VALUES (N'app.outbox', N'outbox_pkey'), (N'app.outbox', N'outbox_once'), (N'app.outbox', N'outbox_open')
                     , (N'app.outbox', N'outbox_parked'), (N'app.outbox', N'outbox_backfill')
                     , (N'app.outbox', N'outbox_finished')
                     , (N'app.outbox_waiting', N'outbox_waiting_pkey'), (N'app.outbox_waiting', N'outbox_waiting_key')
                     , (N'app.outbox_waiting', N'outbox_waiting_wake')) AS needed (owner, name)
         WHERE OBJECT_ID(needed.owner) IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.indexes AS i
                            WHERE i.object_id = OBJECT_ID(needed.owner) AND i.name = needed.name AND i.is_disabled = 0)
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

-- park
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @head TABLE (
    id           bigint         NOT NULL PRIMARY KEY,
    ordering_key nvarchar(1024) COLLATE Latin1_General_100_BIN2 NULL,
    apart        bigint         NOT NULL,
    leased       bit            NOT NULL,
    until        datetime2(6)   NULL,
    scheduled    bit            NOT NULL,
    gate_id      bigint         NULL
);
DECLARE @gates TABLE (
    id           bigint         NOT NULL PRIMARY KEY,
    ordering_key nvarchar(1024) COLLATE Latin1_General_100_BIN2 NULL,
    until        datetime2(6)   NOT NULL,
    reason       nvarchar(16)   NOT NULL
);
DECLARE @behind TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @parked_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @claim_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
    IF @granted < 0
        THROW 50122, N'the lock of a lane of app.outbox was not granted in time', 1;
    SET @now = SYSUTCDATETIME();
    INSERT INTO @head (id, ordering_key, apart, leased, until, scheduled)
    SELECT TOP (@window) id
         , CASE WHEN @unordered = 0 THEN ordering_key END
         , CASE WHEN @unordered = 1 OR ordering_key IS NULL THEN id ELSE DATALENGTH(ordering_key) END
         , CASE WHEN status = N'processing' THEN 1 ELSE 0 END
         , CASE WHEN status = N'processing' THEN NULL
                WHEN locked_until > @now AND (available_at IS NULL OR available_at <= locked_until) THEN locked_until
                WHEN available_at > @now THEN available_at END
         , CASE WHEN available_at > @now THEN 1 ELSE 0 END
      FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND lane = @lane AND finished_at IS NULL AND parked = 0
     ORDER BY id;
    IF @unordered = 0 AND EXISTS (SELECT 1
                                    FROM app.outbox_waiting WITH (INDEX(outbox_waiting_wake), NOLOCK)
                                   WHERE target_broker = @broker)
        UPDATE h
           SET gate_id = w.gate_id
          FROM @head AS h
         INNER JOIN app.outbox_waiting AS w WITH (INDEX(outbox_waiting_key), FORCESEEK)
            ON w.target_broker = @broker AND w.ordering_key IS NOT NULL
           AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', h.ordering_key));
    INSERT INTO @gates (id, ordering_key, until, reason)
    SELECT id, ordering_key, until, CASE WHEN scheduled = 1 THEN N'scheduled' ELSE N'retry' END
      FROM (SELECT id, ordering_key, until, scheduled, ROW_NUMBER() OVER (PARTITION BY ordering_key, apart ORDER BY id) AS place
              FROM @head
             WHERE until IS NOT NULL AND (gate_id IS NULL OR gate_id = id)) AS resting
     WHERE place = 1;
    UPDATE w
       SET wake_at = g.until, reason = g.reason, ordering_key = COALESCE(w.ordering_key, g.ordering_key)
      FROM @gates AS g
     INNER JOIN app.outbox_waiting AS w WITH (ROWLOCK, FORCESEEK) ON w.gate_id = g.id;
    INSERT INTO app.outbox_waiting (target_broker, lane, ordering_key, gate_id, gate_message_id, wake_at, reason)
    SELECT @broker, @lane, g.ordering_key, g.id, COALESCE(m.message_id, CONVERT(uniqueidentifier, N'00000000-0000-0000-0000-000000000000')), g.until, g.reason
      FROM @gates AS g
      LEFT JOIN app.outbox AS m WITH (NOLOCK, FORCESEEK) ON m.id = g.id
     WHERE NOT EXISTS (SELECT 1 FROM app.outbox_waiting AS w WITH (FORCESEEK) WHERE w.gate_id = g.id);
    INSERT INTO @behind (id)
    SELECT id
      FROM (SELECT h.id
                 , h.leased
                 , h.gate_id
                 , MIN(COALESCE(g.id, CONVERT(bigint, 9223372036854775807))) OVER (PARTITION BY h.ordering_key, h.apart) AS new_gate_id
              FROM @head AS h
              LEFT JOIN @gates AS g ON g.id = h.id) AS placed
     WHERE leased = 0 AND (id > gate_id OR id >= new_gate_id);
    UPDATE m
       SET parked = 1
      FROM @behind AS b
     INNER JOIN app.outbox AS m WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST, FORCESEEK) ON m.id = b.id
     WHERE m.status IN (N'pending', N'failed') AND m.parked = 0;
    SET @parked_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @parked_rows AS fanout_parked;

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
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS lanes (lane)
 WHERE EXISTS (SELECT 1
                 FROM (SELECT TOP (20000) m.locked_until, m.available_at
                         FROM app.outbox AS m WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                        WHERE m.target_broker = @broker AND m.lane = lanes.lane AND m.finished_at IS NULL AND m.parked = 0
                        ORDER BY m.id) AS head
                WHERE (head.locked_until IS NULL OR head.locked_until <= @now)
                  AND (head.available_at IS NULL OR head.available_at <= @now))
    OR (SELECT COUNT(*)
          FROM (SELECT TOP (20000) m.id
                  FROM app.outbox AS m WITH (INDEX(outbox_open), NOLOCK)
                 WHERE m.target_broker = @broker AND m.lane = lanes.lane AND m.finished_at IS NULL AND m.parked = 0) AS head) = 20000
    OR EXISTS (SELECT 1
                 FROM app.outbox_waiting AS w WITH (INDEX(outbox_waiting_wake), NOLOCK)
                WHERE w.target_broker = @broker AND w.lane = lanes.lane AND w.wake_at <= @now)
    OR EXISTS (SELECT 1
                 FROM (SELECT TOP (500) w.gate_id
                         FROM app.outbox_waiting AS w WITH (INDEX(outbox_waiting_wake), NOLOCK)
                        WHERE w.target_broker = @broker AND w.lane = lanes.lane AND w.wake_at IS NULL
                        ORDER BY w.gate_id) AS gate
                 LEFT JOIN app.outbox AS m WITH (NOLOCK, FORCESEEK) ON m.id = gate.gate_id
                WHERE m.id IS NULL OR m.finished_at IS NOT NULL)
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

