-- claim
SET NOCOUNT ON;
DECLARE @status nvarchar(16), @type nvarchar(512), @won bit = 0;
DECLARE @resource nvarchar(255), @patience int = @@LOCK_TIMEOUT, @granted int, @number int;
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.inbox_messages'), N':message:',
    CONVERT(bigint, SUBSTRING(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(10), @p4, NCHAR(10), CONVERT(uniqueidentifier, @p2))), 1, 8)));
EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = @patience;
IF @granted < 0
BEGIN
    SET @number = CASE @granted WHEN -3 THEN 51205 ELSE 50122 END; -- a deadlock, or waited for too long
    THROW @number, N'the lock of a message of app.inbox_messages was not granted', 1;
END;
SELECT @status = status, @type = type
  FROM app.inbox_messages WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
IF @status IS NULL OR (@status IN (N'failed', N'redriven', N'expected') AND (@type IS NULL OR @type = @p3))
    SET @won = 1;
IF @status IS NULL
    INSERT INTO app.inbox_messages (consumer, message_id, status, updated_at, type, source)
    VALUES (@p1, @p2, N'handled', SYSUTCDATETIME(), @p3, @p4);
ELSE IF @won = 1
    UPDATE app.inbox_messages
       SET status = N'handled'
         , updated_at = SYSUTCDATETIME()
         , type = @p3
         , last_error = NULL
         , attributes = NULL
         , payload = NULL
     WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
SELECT CASE @won WHEN 1 THEN N'won' ELSE @status END AS fanout_outcome, COALESCE(@type, N'') AS fanout_type, @p4 AS fanout_source;

-- claim_token
SET NOCOUNT ON;
DECLARE @status nvarchar(16), @type nvarchar(512), @source nvarchar(200) = @p4, @won bit = 0;
SELECT @status = status, @type = type
  FROM app.inbox_messages WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
IF @status IN (N'expected', N'failed', N'redriven') AND (@type IS NULL OR @type = @p3)
BEGIN
    SET @won = 1;
    DELETE FROM app.inbox_messages WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
END
ELSE IF @status IS NULL
    SELECT TOP (1) @status = status, @type = type, @source = source FROM app.inbox_messages WHERE consumer = @p1 AND message_id = @p2;
SELECT CASE WHEN @won = 1 THEN N'won' ELSE COALESCE(@status, N'handled') END AS fanout_outcome, COALESCE(@type, N'') AS fanout_type, @source AS fanout_source;

-- count
SET NOCOUNT ON;
DECLARE @status nvarchar(16), @type nvarchar(512), @attempts int, @free bit = 0, @own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
IF @own = 1
BEGIN
    SET XACT_ABORT ON;
    BEGIN TRANSACTION;
END;
DECLARE @resource nvarchar(255), @patience int = @@LOCK_TIMEOUT, @granted int, @number int;
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.inbox_messages'), N':message:',
    CONVERT(bigint, SUBSTRING(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(10), @p4, NCHAR(10), CONVERT(uniqueidentifier, @p2))), 1, 8)));
EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = @patience;
IF @granted < 0
BEGIN
    SET @number = CASE @granted WHEN -3 THEN 51205 ELSE 50122 END; -- a deadlock, or waited for too long
    THROW @number, N'the lock of a message of app.inbox_messages was not granted', 1;
END;
SELECT @status = status, @type = type, @attempts = attempts
  FROM app.inbox_messages WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
DECLARE @before nvarchar(16) = @status;
SET @attempts = COALESCE(@attempts, 0) + @p8;
IF @before IS NULL OR (@before IN (N'failed', N'redriven', N'expected') AND (@type IS NULL OR @type = @p3))
    SET @free = 1;
IF @free = 1
    SET @status = CASE WHEN @attempts >= @p9 THEN N'dead_letter' WHEN @before = N'redriven' THEN N'redriven' ELSE N'failed' END;
IF @before IS NULL
    INSERT INTO app.inbox_messages (consumer, message_id, status, attempts, updated_at, type, source, last_error, attributes, payload)
    VALUES (@p1, @p2, @status, @attempts, SYSUTCDATETIME(), @p3, @p4, @p5
         , CASE WHEN @status = N'dead_letter' THEN @p6 END
         , CASE WHEN @status = N'dead_letter' THEN @p7 END);
ELSE IF @free = 1
    UPDATE app.inbox_messages
       SET status = @status
         , attempts = @attempts
         , updated_at = SYSUTCDATETIME()
         , type = @p3
         , last_error = @p5
         , attributes = CASE WHEN @status = N'dead_letter' THEN @p6 ELSE attributes END
         , payload = CASE WHEN @status = N'dead_letter' THEN @p7 ELSE payload END
     WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
IF @own = 1
    COMMIT TRANSACTION;
SELECT @status AS fanout_status, @attempts AS fanout_attempts
 WHERE @free = 1;

-- count_token
SET NOCOUNT ON;
DECLARE @counted TABLE (status nvarchar(16) NOT NULL, attempts int NOT NULL);
UPDATE app.inbox_messages
   SET status = CASE WHEN attempts + @p8 >= @p9 THEN N'dead_letter' WHEN status = N'redriven' THEN N'redriven' ELSE N'failed' END
     , attempts = attempts + @p8
     , updated_at = SYSUTCDATETIME()
     , type = @p3
     , last_error = @p5
     , attributes = CASE WHEN attempts + @p8 >= @p9 THEN @p6 ELSE attributes END
     , payload = CASE WHEN attempts + @p8 >= @p9 THEN @p7 ELSE payload END
OUTPUT inserted.status, inserted.attempts INTO @counted (status, attempts)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4
   AND (type IS NULL OR type = @p3)
   AND status IN (N'expected', N'failed', N'redriven');
SELECT status AS fanout_status, attempts AS fanout_attempts FROM @counted;

-- dead_letter
SELECT TOP (@p5) consumer, CONVERT(char(36), message_id), COALESCE(type, N''), COALESCE(source, N''), attempts, updated_at
     , COALESCE(last_error, N''), COALESCE(attributes, N''), payload
  FROM app.inbox_messages
 WHERE status = N'dead_letter'
   AND (@p1 = N'' OR consumer = @p1)
   AND (@p2 = N'' OR type = @p2)
   AND (consumer > @p3 OR (consumer = @p3 AND (message_id > CONVERT(uniqueidentifier, @p4)
        OR (message_id = CONVERT(uniqueidentifier, @p4) AND source > @p6))))
 ORDER BY consumer, message_id, source;

-- expect
SET NOCOUNT ON;
DECLARE @tries int = 5;
WHILE @tries > 0
BEGIN
    BEGIN TRY
        INSERT INTO app.inbox_messages (consumer, message_id, source, status, updated_at)
        SELECT @p1, sent.message_id, @p3, N'expected', SYSUTCDATETIME()
          FROM (SELECT DISTINCT CONVERT(uniqueidentifier, value) AS message_id FROM OPENJSON(@p2)) AS sent
         WHERE NOT EXISTS (SELECT 1
                             FROM app.inbox_messages AS m WITH (READCOMMITTEDLOCK)
                            WHERE m.consumer = @p1 AND m.message_id = sent.message_id AND m.source = @p3)
         ORDER BY sent.message_id;
        SET @tries = 0;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() = -1 OR @tries = 1
            THROW;
        SET @tries = @tries - 1;
    END CATCH;
END;

-- finish
UPDATE app.inbox_messages
   SET status = N'handled', updated_at = SYSUTCDATETIME(), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p3
   AND status = N'redriven'

-- finish_token
DELETE FROM app.inbox_messages
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p3
   AND status = N'redriven'

-- lock
DECLARE @granted int;
EXEC @granted = sp_getapplock @Resource = @p1, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0
    THROW 50122, N'another process has been migrating app.inbox_messages for a minute', 1;

-- look
SELECT TOP (1) status, COALESCE(type, N''), source
  FROM app.inbox_messages
 WHERE consumer = @p1 AND message_id = @p2
 ORDER BY CASE source WHEN @p3 THEN 0 ELSE 1 END

-- migrate
IF OBJECT_ID(N'app.inbox_messages_migrations') IS NULL
    CREATE TABLE app.inbox_messages_migrations (
        version    int           NOT NULL CONSTRAINT inbox_messages_migrations_pkey PRIMARY KEY,
        name       nvarchar(128) NOT NULL,
        applied_at datetime2(6)  NOT NULL CONSTRAINT inbox_messages_migrations_default_applied_at DEFAULT SYSUTCDATETIME()
    );

-- progress
SELECT TOP (@p3) LOWER(CONVERT(char(36), m.message_id)), m.source, m.status, COALESCE(m.type, N''), m.attempts, m.updated_at, COALESCE(m.last_error, N'')
  FROM (SELECT DISTINCT CONVERT(uniqueidentifier, value) AS message_id FROM OPENJSON(@p2)) AS asked
 INNER LOOP JOIN app.inbox_messages AS m ON m.consumer = @p1 AND m.message_id = asked.message_id
 ORDER BY m.message_id, m.source;

-- purge_dead_letter
DECLARE @before datetime2(6) = DATEADD(MICROSECOND, CONVERT(int, -(@p1 % 1000000)), DATEADD(SECOND, CONVERT(int, -(@p1 / 1000000)), SYSUTCDATETIME()));
WITH victims AS (
    SELECT TOP (@p2) status, updated_at
      FROM app.inbox_messages WITH (INDEX(inbox_messages_age), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE status = N'dead_letter'
       AND updated_at < @before
     ORDER BY updated_at
)
DELETE FROM victims
 WHERE status = N'dead_letter' AND updated_at < @before;

-- purge_expected
DECLARE @before datetime2(6) = DATEADD(MICROSECOND, CONVERT(int, -(@p1 % 1000000)), DATEADD(SECOND, CONVERT(int, -(@p1 / 1000000)), SYSUTCDATETIME()));
WITH victims AS (
    SELECT TOP (@p2) status, updated_at
      FROM app.inbox_messages WITH (INDEX(inbox_messages_age), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE status = N'expected'
       AND updated_at < @before
     ORDER BY updated_at
)
DELETE FROM victims
 WHERE status = N'expected' AND updated_at < @before;

-- purge_failed
DECLARE @before datetime2(6) = DATEADD(MICROSECOND, CONVERT(int, -(@p1 % 1000000)), DATEADD(SECOND, CONVERT(int, -(@p1 / 1000000)), SYSUTCDATETIME()));
WITH victims AS (
    SELECT TOP (@p2) status, updated_at
      FROM app.inbox_messages WITH (INDEX(inbox_messages_age), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE status = N'failed'
       AND updated_at < @before
     ORDER BY updated_at
)
DELETE FROM victims
 WHERE status = N'failed' AND updated_at < @before;

-- purge_handled
DECLARE @before datetime2(6) = DATEADD(MICROSECOND, CONVERT(int, -(@p1 % 1000000)), DATEADD(SECOND, CONVERT(int, -(@p1 / 1000000)), SYSUTCDATETIME()));
WITH victims AS (
    SELECT TOP (@p2) status, updated_at
      FROM app.inbox_messages WITH (INDEX(inbox_messages_age), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE status = N'handled'
       AND updated_at < @before
     ORDER BY updated_at
)
DELETE FROM victims
 WHERE status = N'handled' AND updated_at < @before;

-- purge_redriven
DECLARE @before datetime2(6) = DATEADD(MICROSECOND, CONVERT(int, -(@p1 % 1000000)), DATEADD(SECOND, CONVERT(int, -(@p1 / 1000000)), SYSUTCDATETIME()));
WITH victims AS (
    SELECT TOP (@p2) status, updated_at
      FROM app.inbox_messages WITH (INDEX(inbox_messages_age), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE status = N'redriven'
       AND updated_at < @before
     ORDER BY updated_at
)
DELETE FROM victims
 WHERE status = N'redriven' AND updated_at < @before;

-- record
INSERT INTO app.inbox_messages_migrations (version, name) VALUES (@p1, @p2)

-- redrive
UPDATE app.inbox_messages
   SET status = N'redriven', attempts = 0, updated_at = SYSUTCDATETIME()
 WHERE consumer = @p1
   AND message_id IN (SELECT CONVERT(uniqueidentifier, value) FROM OPENJSON(@p2))
   AND (@p3 = N'' OR source = @p3)
   AND status = N'dead_letter';

-- redrive_all
UPDATE TOP (@p3) app.inbox_messages WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET status = N'redriven', attempts = 0, updated_at = SYSUTCDATETIME()
 WHERE status = N'dead_letter' AND consumer = @p1 AND (@p2 = N'' OR type = @p2);

-- redriven
SELECT TOP (@p5) consumer, CONVERT(char(36), message_id), COALESCE(type, N''), COALESCE(source, N''), attempts, updated_at
     , COALESCE(last_error, N''), COALESCE(attributes, N''), payload
  FROM app.inbox_messages
 WHERE status = N'redriven'
   AND (@p1 = N'' OR consumer = @p1)
   AND (@p2 = N'' OR type = @p2)
   AND (consumer > @p3 OR (consumer = @p3 AND (message_id > CONVERT(uniqueidentifier, @p4)
        OR (message_id = CONVERT(uniqueidentifier, @p4) AND source > @p6))))
 ORDER BY consumer, message_id, source;

-- types
SELECT DISTINCT newest.type
  FROM (SELECT TOP (@p2) type, status FROM app.inbox_messages WHERE consumer = @p1 ORDER BY message_id DESC, source DESC) AS newest
 WHERE newest.status = N'handled' AND newest.type IS NOT NULL;

-- versions
SELECT version FROM app.inbox_messages_migrations ORDER BY version

