-- exchange published=false other=false claim=2 wake=false
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @resource nvarchar(255), @granted int;
DECLARE @seen int = 0, @waiting int = 0, @blocked bit, @suspicion int, @take bigint, @chosen_rows int = 0, @alone bit = 0, @cut bit = 0;
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
     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
       AND (locked_until IS NULL OR locked_until <= @now)
       AND (available_at IS NULL OR available_at <= @now)
     ORDER BY id;
    SET @seen = @@ROWCOUNT;
    IF @seen < @take
        SET @waiting = (SELECT COUNT(*)
                          FROM (SELECT TOP (20000) status, locked_until, available_at
                                  FROM app.outbox WITH (INDEX(outbox_open), NOLOCK)
                                 WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
                                 ORDER BY id) AS head
                         WHERE status <> N'processing' AND (locked_until > @now OR available_at > @now));
    SET @blocked = CASE WHEN EXISTS (SELECT 1
                                     FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake), NOLOCK)
                                    WHERE target_broker = @broker) THEN 1 ELSE 0 END;
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
        SET @chosen_rows = @@ROWCOUNT;
        IF @chosen_rows > 1 AND @bytes < (SELECT SUM(CONVERT(bigint, DATALENGTH(p.payload)))
                                            FROM @chosen AS c
                                           INNER JOIN app.outbox AS p WITH (FORCESEEK, NOLOCK) ON p.id = c.id)
        BEGIN
            DELETE FROM @chosen
             WHERE id > (SELECT MIN(id) FROM @chosen)
               AND id >= (SELECT MIN(so_far.id)
                            FROM (SELECT p.id
                                       , SUM(CONVERT(bigint, DATALENGTH(p.payload))) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS total
                                    FROM @chosen AS c
                                   INNER JOIN app.outbox AS p WITH (FORCESEEK, NOLOCK) ON p.id = c.id) AS so_far
                           WHERE so_far.total > @bytes);
            IF @@ROWCOUNT > 0
                SET @cut = 1;
            SET @chosen_rows = (SELECT COUNT(*) FROM @chosen);
        END;
        IF @chosen_rows = 1 AND @shared = 0
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
         INNER JOIN app.outbox AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = c.id
         WHERE m.status IN (N'pending', N'failed', N'processing') AND m.deferred = 0
           AND (m.locked_until IS NULL OR m.locked_until <= @now);
    END;
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT CONVERT(bit, 0) AS fanout_busy
     , @seen AS seen
     , @cut AS cut
     , @waiting AS waiting
     , @blocked AS blocked
     , CONVERT(bit, 0) AS ahead_waits;
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

-- exchange published=true other=true claim=1 wake=true
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
     WHERE m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing';
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
    error         nvarchar(max) NULL,
    goes_on       int           NULL
);
DECLARE @blocking TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @back TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @other_rows int;
INSERT INTO @outcomes (id, status, spent, delay_seconds, delay_micros, error, goes_on)
SELECT id, status, spent, delay_seconds, delay_micros, error, goes_on
  FROM OPENJSON(@other)
       WITH (id bigint '$.i', status nvarchar(16) '$.s', spent int '$.a', delay_seconds int '$.d', delay_micros int '$.u',
             error nvarchar(max) '$.e', goes_on int '$.g');
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @completed_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
    IF @granted < 0
        THROW 50122, N'the lock of a shard of app.outbox was not granted in time', 1;
    SET @now = SYSUTCDATETIME();
    IF @block_abandoned = 1
        INSERT INTO @blocking (id)
        SELECT MIN(m.id)
          FROM @outcomes AS o
         INNER JOIN app.outbox AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = o.id
         WHERE o.status = N'abandoned' AND o.goes_on IS NULL AND m.ordering_key IS NOT NULL
           AND m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing'
         GROUP BY m.target_broker, m.key_hash;
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
     WHERE m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing';
    SET @other_rows = @@ROWCOUNT;
    IF @block_abandoned = 1
    BEGIN
        UPDATE w
           SET shard            = m.shard
             , block_id         = m.id
             , block_message_id = m.message_id
             , wake_at         = '9999-12-31'
             , reason          = N'operator'
             , since           = @now
          FROM @blocking AS p
         INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = p.id
         INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, INDEX(outbox_blocks_key), FORCESEEK)
            ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.ordering_key IS NOT NULL;
        INSERT INTO app.outbox_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason, since)
        SELECT m.target_broker, m.shard, m.ordering_key, m.id, m.message_id, '9999-12-31', N'operator', @now
          FROM @blocking AS p
         INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = p.id
         WHERE NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS w WITH (FORCESEEK) WHERE w.block_id = m.id);
        INSERT INTO @back (id)
        SELECT earlier.id
          FROM @blocking AS p
         INNER JOIN app.outbox AS g WITH (FORCESEEK) ON g.id = p.id
         INNER JOIN app.outbox AS earlier WITH (INDEX(outbox_deferred_key), FORCESEEK)
            ON earlier.target_broker = g.target_broker AND earlier.key_hash = g.key_hash AND earlier.id < g.id
         WHERE earlier.deferred = 1 AND earlier.finished_at IS NULL;
        UPDATE m
           SET deferred = 0
          FROM @back AS b
         INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = b.id
         WHERE m.deferred = 1;
    END;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @other_rows AS fanout_other;
DECLARE @busy bit = 0, @seen int = 0, @waiting int = 0, @blocked bit = 0, @mixed bit = 0, @ahead bigint, @ahead_waits bit = 0;
DECLARE @ahead_hash binary(32);
DECLARE @suspicion int, @take bigint, @chosen_rows int = 0, @alone bit = 0, @cut bit = 0;
DECLARE @ready TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @win TABLE (
    id           bigint         NOT NULL,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    apart        bigint         NOT NULL,
    key_hash     binary(32)     NULL,
    clear        int            NOT NULL,
    rests        int            NOT NULL,
    low_rests    int            NOT NULL,
    in_hand      int            NOT NULL,
    suspicion    int            NOT NULL
);
DECLARE @judged TABLE (id bigint NOT NULL, free int NOT NULL, waits int NOT NULL, lowest int NOT NULL, highest int NOT NULL);
DECLARE @chosen TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY);
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox'), N':', @claim_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
    IF @granted < -1
        THROW 50122, N'the lock of a shard of app.outbox was not granted', 1;
    IF @granted = -1
        SET @busy = 1;
    ELSE
    BEGIN
        SET @now = SYSUTCDATETIME();
DECLARE @due TABLE (block_id bigint NOT NULL PRIMARY KEY, alone bit NOT NULL);
INSERT INTO @due (block_id, alone)
SELECT TOP (500) block_id, CASE WHEN ordering_key IS NULL THEN 1 ELSE 0 END
  FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake))
 WHERE target_broker = @broker AND shard = @shard AND wake_at <= @now
 ORDER BY wake_at;
IF @@ROWCOUNT > 0
BEGIN
    UPDATE m
       SET deferred = 0
      FROM @due AS d
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = d.block_id
     WHERE m.deferred = 1;
    UPDATE w
       SET wake_at = NULL
      FROM @due AS d
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = d.block_id
     WHERE d.alone = 0;
    DELETE w
      FROM @due AS d
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = d.block_id
     WHERE d.alone = 1;
END;
DECLARE @blocks TABLE (
    block_id     bigint       NOT NULL PRIMARY KEY,
    key_hash    binary(32)   NULL,
    found       bit          NOT NULL,
    done        bit          NOT NULL,
    rests_until datetime2(6) NULL
);
DECLARE @through TABLE (
    id         bigint           NOT NULL PRIMARY KEY,
    block_id    bigint           NOT NULL,
    message_id uniqueidentifier NOT NULL,
    shard       int              NOT NULL,
    place      int              NOT NULL
);
DECLARE @resting TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @blocks (block_id, key_hash, found, done)
SELECT TOP (500) block_id, key_hash, 0, 0
  FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake))
 WHERE target_broker = @broker AND shard = @shard AND wake_at IS NULL
 ORDER BY block_id;
IF @@ROWCOUNT > 0
BEGIN
    UPDATE g
       SET found       = 1
         , done        = CASE WHEN m.finished_at IS NULL THEN 0 ELSE 1 END
         , rests_until = CASE WHEN m.status NOT IN (N'pending', N'failed') THEN NULL
                              WHEN m.available_at IS NULL OR m.locked_until >= m.available_at THEN m.locked_until
                              ELSE m.available_at END
      FROM @blocks AS g
     INNER JOIN app.outbox AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = g.block_id;
    UPDATE g
       SET found = 1
      FROM @blocks AS g
     INNER JOIN app.outbox AS m WITH (NOLOCK, FORCESEEK) ON m.id = g.block_id
     WHERE g.found = 0;
    UPDATE g
       SET done = 1
      FROM @blocks AS g
     WHERE g.found = 0
       AND NOT EXISTS (SELECT 1 FROM app.outbox AS m WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE m.id = g.block_id);
    INSERT INTO @through (id, block_id, message_id, shard, place)
    SELECT follower.id, done.block_id, follower.message_id, follower.shard
         , ROW_NUMBER() OVER (PARTITION BY done.block_id ORDER BY follower.id)
      FROM (SELECT TOP (10) block_id, key_hash FROM @blocks WHERE done = 1 ORDER BY block_id) AS done
     CROSS APPLY (SELECT COUNT(*) AS followers
                    FROM (SELECT TOP (400) m.id
                            FROM app.outbox AS m WITH (INDEX(outbox_deferred_key))
                           WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.deferred = 1 AND m.finished_at IS NULL
                             AND m.id > done.block_id
                           ORDER BY m.id) AS next_ones) AS behind
     CROSS APPLY (SELECT TOP (400) m.id, m.message_id, m.shard
                    FROM app.outbox AS m WITH (INDEX(outbox_deferred_key))
                   WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.deferred = 1 AND m.finished_at IS NULL
                     AND m.id > CASE WHEN behind.followers = 400 THEN done.block_id ELSE 0 END
                   ORDER BY m.id) AS follower;
    UPDATE m
       SET deferred = 0
      FROM @through AS t
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = t.id
     WHERE m.deferred = 1;
    DELETE w
      FROM @through AS t
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = t.id
     WHERE w.ordering_key IS NULL;
    UPDATE w
       SET block_id = t.id, block_message_id = t.message_id, shard = t.shard
      FROM @through AS t
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = t.block_id
     WHERE t.place = 400;
    DELETE w
      FROM (SELECT TOP (10) block_id FROM @blocks WHERE done = 1 ORDER BY block_id) AS done
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = done.block_id;
    UPDATE m
       SET deferred = 1
    OUTPUT inserted.id INTO @resting
      FROM @blocks AS g
     INNER JOIN app.outbox AS m WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST, FORCESEEK) ON m.id = g.block_id
     WHERE g.rests_until > @now AND m.status IN (N'pending', N'failed');
    UPDATE w
       SET wake_at = g.rests_until
      FROM @resting AS r
     INNER JOIN @blocks AS g ON g.block_id = r.id
     INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = r.id;
END;
        INSERT INTO @ready (id)
        SELECT id
          FROM (SELECT TOP (@window) id, locked_until, available_at
                  FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
                 ORDER BY id) AS head
         WHERE (locked_until IS NULL OR locked_until <= @now)
           AND (available_at IS NULL OR available_at <= @now);
        SET @blocked = CASE WHEN EXISTS (SELECT 1
                                         FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake), NOLOCK)
                                        WHERE target_broker = @broker) THEN 1 ELSE 0 END;
        IF @shard < 4 AND EXISTS (SELECT 1
                                   FROM app.outbox WITH (INDEX(outbox_open), NOLOCK)
                                  WHERE target_broker = @broker AND shard = @shard + 4 AND finished_at IS NULL AND deferred = 0)
            SET @mixed = 1;
        IF @shard BETWEEN 4 AND 7
            SELECT TOP (1) @ahead = id
                         , @ahead_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', ordering_key))
                         , @ahead_waits = CASE WHEN status <> N'processing' AND (locked_until > @now OR available_at > @now)
                                               THEN 1 ELSE 0 END
              FROM app.outbox WITH (INDEX(outbox_open), NOLOCK)
             WHERE target_broker = @broker AND shard = @shard - 4 AND finished_at IS NULL AND deferred = 0
             ORDER BY id;
        IF EXISTS (SELECT 1
                     FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
                    WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                      AND w.key_hash = @ahead_hash AND w.block_id < @ahead)
            SET @ahead_waits = 1;
        IF EXISTS (SELECT 1
                     FROM (SELECT TOP (1) low.status, low.locked_until, low.available_at
                             FROM app.outbox AS low WITH (INDEX(outbox_backfill), FORCESEEK, NOLOCK)
                            WHERE low.target_broker = @broker AND low.priority < 0 AND low.finished_at IS NULL
                              AND low.key_hash = @ahead_hash AND low.id < @ahead
                            ORDER BY low.id) AS earliest
                    WHERE status <> N'processing' AND (locked_until > @now OR available_at > @now))
            SET @ahead_waits = 1;
        INSERT INTO @win (id, ordering_key, apart, key_hash, clear, rests, low_rests, in_hand, suspicion)
        SELECT TOP (@window) m.id
             , m.ordering_key
             , CASE WHEN m.ordering_key IS NULL THEN m.id ELSE DATALENGTH(m.ordering_key) END
             , CASE WHEN @blocked = 1 OR @mixed = 1 THEN CONVERT(binary(32), HASHBYTES('SHA2_256', m.ordering_key)) END
             , CASE WHEN r.id IS NULL OR (m.ordering_key IS NOT NULL AND m.id > @ahead) THEN 0 ELSE 1 END
             , CASE WHEN m.status <> N'processing' AND (m.locked_until > @now OR m.available_at > @now) THEN 1 ELSE 0 END
             , 0
             , CASE WHEN m.status = N'processing' AND m.locked_until > @now THEN 1 ELSE 0 END
             , m.crashes + CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
          FROM app.outbox AS m WITH (INDEX(outbox_open), NOLOCK)
          LEFT JOIN @ready AS r ON r.id = m.id
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0
         ORDER BY m.id;
        SET @seen = @@ROWCOUNT;
        IF @blocked = 1
            UPDATE win
               SET clear = 0, rests = 1
              FROM @win AS win
             WHERE EXISTS (SELECT 1
                             FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
                            WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                              AND w.key_hash = win.key_hash AND w.block_id < win.id);
        IF @mixed = 1
        BEGIN
            UPDATE win
               SET clear = 0, low_rests = low.rests
              FROM @win AS win
             CROSS APPLY (SELECT TOP (1) CASE WHEN m.status <> N'processing' AND (m.locked_until > @now OR m.available_at > @now)
                                              THEN 1 ELSE 0 END AS rests
                            FROM app.outbox AS m WITH (INDEX(outbox_backfill), FORCESEEK, NOLOCK)
                           WHERE m.target_broker = @broker AND m.priority < 0 AND m.finished_at IS NULL
                             AND m.key_hash = win.key_hash AND m.id < win.id
                           ORDER BY m.id) AS low;
            IF EXISTS (SELECT 1 FROM @win WHERE low_rests = 1)
                SET @ahead_waits = 1;
        END;
        IF NOT EXISTS (SELECT 1 FROM @win WHERE clear = 0 OR suspicion > 0)
        BEGIN
            INSERT INTO @chosen (id)
            SELECT TOP (@limit) id
              FROM @win
             ORDER BY id;
            SET @chosen_rows = @@ROWCOUNT;
        END
        ELSE
        BEGIN
            INSERT INTO @judged (id, free, waits, lowest, highest)
            SELECT id, CASE WHEN clear = 1 AND in_hand = 0 THEN 1 ELSE 0 END, waits, lowest, highest
              FROM (SELECT id
                         , MIN(clear) OVER (PARTITION BY ordering_key, apart ORDER BY id ROWS UNBOUNDED PRECEDING) AS clear
                         , MAX(rests | low_rests) OVER (PARTITION BY ordering_key, apart ORDER BY id ROWS UNBOUNDED PRECEDING) AS waits
                         , MAX(in_hand) OVER (PARTITION BY ordering_key, apart) AS in_hand
                         , MIN(suspicion) OVER (PARTITION BY ordering_key, apart ORDER BY id ROWS UNBOUNDED PRECEDING) AS lowest
                         , MAX(suspicion) OVER (PARTITION BY ordering_key, apart ORDER BY id ROWS UNBOUNDED PRECEDING) AS highest
                      FROM @win) AS partition_of_key;
            SET @waiting = (SELECT COUNT(*) FROM @judged WHERE waits = 1);
            SET @suspicion = (SELECT TOP (1) lowest FROM @judged WHERE free = 1 ORDER BY id);
            IF @suspicion IS NOT NULL
            BEGIN
                SET @take = @limit / POWER(2, CASE WHEN @suspicion > 30 THEN 30 ELSE @suspicion END);
                IF @take < 1
                    SET @take = 1;
                INSERT INTO @chosen (id)
                SELECT TOP (@take) id
                  FROM @judged
                 WHERE free = 1 AND lowest = @suspicion AND highest = @suspicion
                 ORDER BY id;
                SET @chosen_rows = @@ROWCOUNT;
            END;
        END;
        IF @chosen_rows > 1 AND @bytes < (SELECT SUM(CONVERT(bigint, DATALENGTH(p.payload)))
                                            FROM @chosen AS c
                                           INNER JOIN app.outbox AS p WITH (FORCESEEK, NOLOCK) ON p.id = c.id)
        BEGIN
            DELETE FROM @chosen
             WHERE id > (SELECT MIN(id) FROM @chosen)
               AND id >= (SELECT MIN(so_far.id)
                            FROM (SELECT p.id
                                       , SUM(CONVERT(bigint, DATALENGTH(p.payload))) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS total
                                    FROM @chosen AS c
                                   INNER JOIN app.outbox AS p WITH (FORCESEEK, NOLOCK) ON p.id = c.id) AS so_far
                           WHERE so_far.total > @bytes);
            IF @@ROWCOUNT > 0
                SET @cut = 1;
            SET @chosen_rows = (SELECT COUNT(*) FROM @chosen);
        END;
        IF @chosen_rows = 1 AND @shared = 0
            SET @alone = 1;
        IF @chosen_rows > 0
        BEGIN
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
             WHERE m.status IN (N'pending', N'failed', N'processing') AND m.deferred = 0
               AND (m.locked_until IS NULL OR m.locked_until <= @now);
            IF (SELECT COUNT(*) FROM @claimed) <> @chosen_rows
                THROW 50123, N'a row of app.outbox was changed while it was being claimed', 1;
        END;
    END;
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @busy AS fanout_busy
     , @seen AS seen
     , @cut AS cut
     , @waiting AS waiting
     , @blocked AS blocked
     , @ahead_waits AS ahead_waits;
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

