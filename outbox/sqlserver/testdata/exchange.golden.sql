-- exchange published=false other=false claim=2
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @seen int = 0, @suspicion int, @take bigint, @alone bit = 0;
DECLARE @free TABLE (id bigint NOT NULL PRIMARY KEY, suspicion int NOT NULL);
DECLARE @chosen TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY);
BEGIN TRY
    BEGIN TRANSACTION;
    SET @now = SYSUTCDATETIME();
    SET @take = CASE WHEN @window < @limit THEN @window ELSE @limit END;
    INSERT INTO @free (id, suspicion)
    SELECT TOP (@take) id
         , crashes + CASE WHEN status = N'processing' THEN 1 ELSE 0 END
      FROM app.outbox WITH (INDEX(outbox_open), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND lane = @lane AND finished_at IS NULL AND parked = 0
       AND (locked_until IS NULL OR locked_until <= @now)
       AND (available_at IS NULL OR available_at <= @now)
     ORDER BY id;
    SET @seen = @@ROWCOUNT;
    SET @suspicion = (SELECT TOP (1) suspicion FROM @free ORDER BY id);
    IF @suspicion IS NOT NULL
    BEGIN
        SET @take = @limit / POWER(2, CASE WHEN @suspicion > 30 THEN 30 ELSE @suspicion END);
        IF @take < 1
            SET @take = 1;
        INSERT INTO @chosen (id)
        SELECT TOP (@take) id
          FROM @free
         WHERE suspicion = @suspicion
         ORDER BY id;
        IF @@ROWCOUNT = 1
            SET @alone = 1;
        UPDATE m
           SET status       = N'processing'
             , locked_by    = CONVERT(nvarchar(256), @worker)
             , lock_token   = CONVERT(uniqueidentifier, @token)
             , locked_until = DATEADD(MICROSECOND, @lease_micros, DATEADD(SECOND, @lease_seconds, @now))
             , attempts     = m.attempts + CASE WHEN m.status = N'processing' AND m.isolated = 1 THEN 1 ELSE 0 END
             , crashes      = m.crashes + CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
             , isolated     = @alone
        OUTPUT inserted.id INTO @claimed
          FROM @chosen AS c
         INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
         WHERE m.status IN (N'pending', N'failed', N'processing') AND m.parked = 0
           AND (m.locked_until IS NULL OR m.locked_until <= @now);
    END;
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT CONVERT(bit, 0) AS fanout_busy, @seen AS fanout_seen;
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
     , CONVERT(bit, CASE WHEN m.expires_at <= @now THEN 1 ELSE 0 END) AS expired
     , m.payload
  FROM @claimed AS c
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = c.id
 WHERE m.lock_token = CONVERT(uniqueidentifier, @token)
 ORDER BY m.id;

-- exchange published=true other=true claim=1
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @delivered TABLE (id bigint NOT NULL, broker_message_id nvarchar(max) NULL);
DECLARE @published_rows int;
INSERT INTO @delivered (id, broker_message_id)
SELECT id, broker_message_id
  FROM OPENJSON(@published) WITH (id bigint '$.i', broker_message_id nvarchar(max) '$.b');
BEGIN TRY
    BEGIN TRANSACTION;
    SET @now = SYSUTCDATETIME();
    UPDATE m
       SET status            = N'published'
         , published_at      = @now
         , finished_at       = @now
         , attempts          = m.attempts + 1
         , locked_by         = NULL
         , lock_token        = NULL
         , locked_until      = NULL
         , broker_message_id = d.broker_message_id
      FROM @delivered AS d
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = d.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @settled_token) AND m.status = N'processing';
    SET @published_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @published_rows AS fanout_published;
DECLARE @outcomes TABLE (
    id            bigint        NOT NULL,
    status        nvarchar(16)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    spent         int           NOT NULL,
    delay_seconds int           NOT NULL,
    delay_micros  int           NOT NULL,
    error         nvarchar(max) NULL
);
DECLARE @other_rows int;
INSERT INTO @outcomes (id, status, spent, delay_seconds, delay_micros, error)
SELECT id, status, spent, delay_seconds, delay_micros, error
  FROM OPENJSON(@other)
       WITH (id bigint '$.i', status nvarchar(16) '$.s', spent int '$.a', delay_seconds int '$.d', delay_micros int '$.u',
             error nvarchar(max) '$.e');
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @settled_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
    IF @granted < 0
        THROW 50122, N'the lock of a lane of app.outbox was not granted in time', 1;
    SET @now = SYSUTCDATETIME();
    UPDATE m
       SET status       = o.status
         , finished_at  = CASE WHEN o.status = N'abandoned' THEN @now END
         , attempts     = m.attempts + o.spent
         , crashes      = CASE WHEN o.spent > 0 THEN 0 ELSE m.crashes END
         , isolated     = 0
         , locked_by    = NULL
         , lock_token   = NULL
         , locked_until = CASE WHEN o.delay_seconds > 0 OR o.delay_micros > 0
                               THEN DATEADD(MICROSECOND, o.delay_micros, DATEADD(SECOND, o.delay_seconds, @now)) END
         , last_error   = COALESCE(o.error, m.last_error)
      FROM @outcomes AS o
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = o.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @settled_token) AND m.status = N'processing';
    SET @other_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @other_rows AS fanout_other;
DECLARE @busy bit = 0, @seen int = 0, @suspicion int, @take bigint, @alone bit = 0;
DECLARE @ready TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @win TABLE (
    id           bigint         NOT NULL,
    ordering_key nvarchar(1024) COLLATE Latin1_General_100_BIN2 NULL,
    apart        bigint         NOT NULL,
    ready        int            NOT NULL,
    in_hand      int            NOT NULL,
    suspicion    int            NOT NULL
);
DECLARE @free TABLE (id bigint NOT NULL, lowest int NOT NULL, highest int NOT NULL);
DECLARE @chosen TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY);
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @claim_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
    IF @granted < -1
        THROW 50122, N'the lock of a lane of app.outbox was not granted', 1;
    IF @granted = -1
        SET @busy = 1;
    ELSE
    BEGIN
        SET @now = SYSUTCDATETIME();
        INSERT INTO @ready (id)
        SELECT id
          FROM (SELECT TOP (@window) id, locked_until, available_at
                  FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE target_broker = @broker AND lane = @lane AND finished_at IS NULL AND parked = 0
                 ORDER BY id) AS head
         WHERE (locked_until IS NULL OR locked_until <= @now)
           AND (available_at IS NULL OR available_at <= @now);
        INSERT INTO @win (id, ordering_key, apart, ready, in_hand, suspicion)
        SELECT TOP (@window) m.id
             , m.ordering_key
             , CASE WHEN m.ordering_key IS NULL THEN m.id ELSE DATALENGTH(m.ordering_key) END
             , CASE WHEN r.id IS NULL THEN 0 ELSE 1 END
             , CASE WHEN m.status = N'processing' AND m.locked_until > @now THEN 1 ELSE 0 END
             , m.crashes + CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
          FROM app.outbox AS m WITH (INDEX(outbox_open), NOLOCK)
          LEFT JOIN @ready AS r ON r.id = m.id
         WHERE m.target_broker = @broker AND m.lane = @lane AND m.finished_at IS NULL AND m.parked = 0
         ORDER BY m.id;
        SET @seen = @@ROWCOUNT;
        INSERT INTO @free (id, lowest, highest)
        SELECT id, lowest, highest
          FROM (SELECT id
                     , MIN(ready) OVER (PARTITION BY ordering_key, apart ORDER BY id ROWS UNBOUNDED PRECEDING) AS clear
                     , MAX(in_hand) OVER (PARTITION BY ordering_key, apart) AS in_hand
                     , MIN(suspicion) OVER (PARTITION BY ordering_key, apart ORDER BY id ROWS UNBOUNDED PRECEDING) AS lowest
                     , MAX(suspicion) OVER (PARTITION BY ordering_key, apart ORDER BY id ROWS UNBOUNDED PRECEDING) AS highest
                  FROM @win) AS judged
         WHERE clear = 1 AND in_hand = 0;
        SET @suspicion = (SELECT TOP (1) lowest FROM @free ORDER BY id);
        IF @suspicion IS NOT NULL
        BEGIN
            SET @take = @limit / POWER(2, CASE WHEN @suspicion > 30 THEN 30 ELSE @suspicion END);
            IF @take < 1
                SET @take = 1;
            INSERT INTO @chosen (id)
            SELECT TOP (@take) id
              FROM @free
             WHERE lowest = @suspicion AND highest = @suspicion
             ORDER BY id;
            IF @@ROWCOUNT = 1
                SET @alone = 1;
            UPDATE m
               SET status       = N'processing'
                 , locked_by    = CONVERT(nvarchar(256), @worker)
                 , lock_token   = CONVERT(uniqueidentifier, @token)
                 , locked_until = DATEADD(MICROSECOND, @lease_micros, DATEADD(SECOND, @lease_seconds, @now))
                 , attempts     = m.attempts + CASE WHEN m.status = N'processing' AND m.isolated = 1 THEN 1 ELSE 0 END
                 , crashes      = m.crashes + CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
                 , isolated     = @alone
            OUTPUT inserted.id INTO @claimed
              FROM @chosen AS c
             INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
             WHERE m.status IN (N'pending', N'failed', N'processing') AND m.parked = 0
               AND (m.locked_until IS NULL OR m.locked_until <= @now);
        END;
    END;
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @busy AS fanout_busy, @seen AS fanout_seen;
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
     , CONVERT(bit, CASE WHEN m.expires_at <= @now THEN 1 ELSE 0 END) AS expired
     , m.payload
  FROM @claimed AS c
 INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = c.id
 WHERE m.lock_token = CONVERT(uniqueidentifier, @token)
 ORDER BY m.id;

