SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
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
         , attempts          = m.attempts + CASE WHEN m.attempts < 1048575 THEN 1 ELSE 0 END
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
    SET @found_version = NULL;
    SELECT @found_version = version
      FROM app.outbox_shards WITH (UPDLOCK, ROWLOCK, FORCESEEK)
     WHERE target_broker = @completed_broker AND shard = @completed_shard % 4;
    IF @found_version IS NULL
    BEGIN
        SET @found_version = 0;
        INSERT INTO app.outbox_shards (target_broker, shard, version) VALUES (@completed_broker, @completed_shard % 4, 0);
    END;
    SET @now = SYSUTCDATETIME();
    IF @block_abandoned = 1
        INSERT INTO @blocking (id)
        SELECT MIN(m.id)
          FROM @outcomes AS o
         INNER JOIN app.outbox AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = o.id
         WHERE o.status = N'abandoned' AND o.goes_on IS NULL AND m.ordering_key IS NOT NULL
           AND m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing'
         GROUP BY m.target_broker, m.key_hash, m.shard;
    UPDATE m
       SET status       = o.status
         , finished_at  = CASE WHEN o.status = N'abandoned' THEN @now END
         , attempts     = m.attempts + CASE WHEN m.attempts < 1048575 THEN o.spent ELSE 0 END
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
    IF EXISTS (SELECT 1 FROM @blocking)
    BEGIN
    UPDATE s
       SET version = version + 1
      FROM app.outbox_shards AS s WITH (ROWLOCK, FORCESEEK)
     WHERE target_broker = @completed_broker AND shard = @completed_shard % 4;
        UPDATE w
           SET block_id         = m.id
             , block_message_id = m.message_id
             , wake_at         = '9999-12-31'
             , reason          = N'operator'
             , since           = @now
          FROM @blocking AS p
         INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = p.id
         INNER JOIN app.outbox_key_blocks AS w WITH (ROWLOCK, INDEX(outbox_blocks_key), FORCESEEK)
            ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.shard = m.shard AND w.ordering_key IS NOT NULL;
        INSERT INTO app.outbox_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason, since)
        SELECT m.target_broker, m.shard, m.ordering_key, m.id, m.message_id, '9999-12-31', N'operator', @now
          FROM @blocking AS p
         INNER JOIN app.outbox AS m WITH (FORCESEEK) ON m.id = p.id
         WHERE NOT EXISTS (SELECT 1 FROM app.outbox_key_blocks AS w WITH (FORCESEEK) WHERE w.block_id = m.id AND w.shard = m.shard);
        INSERT INTO @back (id)
        SELECT earlier.id
          FROM @blocking AS p
         INNER JOIN app.outbox AS g WITH (FORCESEEK) ON g.id = p.id
         INNER JOIN app.outbox AS earlier WITH (INDEX(outbox_deferred_key), FORCESEEK)
            ON earlier.target_broker = g.target_broker AND earlier.key_hash = g.key_hash AND earlier.shard = g.shard AND earlier.id < g.id
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
DECLARE @simple bit = 0, @seen int = 0, @waiting int = 0;
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
DECLARE @blocks TABLE (
    block_id     bigint        NOT NULL PRIMARY KEY,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    key_hash     binary(32)    NULL,
    due          bit           NOT NULL,
    done         bit           NULL,
    waits        bit           NULL,
    scheduled    bit           NOT NULL DEFAULT 0
);
DECLARE @followers TABLE (block_id bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (block_id, id));
DECLARE @chosen TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY);
BEGIN TRY
    BEGIN TRANSACTION;
    IF @unordered = 0 OR @wake = 1
    BEGIN
        SET @found_version = NULL;
        SELECT @found_version = version
          FROM app.outbox_shards WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK)
         WHERE target_broker = @broker AND shard = @shard % 4;
        IF @found_version IS NULL
           AND NOT EXISTS (SELECT 1 FROM app.outbox_shards WITH (FORCESEEK, NOLOCK) WHERE target_broker = @broker AND shard = @shard % 4)
        BEGIN
            SET @found_version = 0;
            INSERT INTO app.outbox_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
        END;
    END;
    SET @now = SYSUTCDATETIME();
    IF @wake = 1 AND @found_version IS NOT NULL
    BEGIN
        INSERT INTO @blocks (block_id, ordering_key, key_hash, due, done, waits)
        SELECT found.block_id, found.ordering_key, found.key_hash, found.due
             , CASE WHEN m.id IS NOT NULL THEN CASE WHEN m.finished_at IS NULL AND m.available_at IS NULL THEN 0 ELSE 1 END
                    WHEN EXISTS (SELECT 1 FROM app.outbox AS dirty WITH (FORCESEEK, NOLOCK) WHERE dirty.id = found.block_id) THEN NULL
                    WHEN EXISTS (SELECT 1 FROM app.outbox AS settled WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE settled.id = found.block_id) THEN NULL
                    ELSE 1 END
             , CASE WHEN m.status IN (N'pending', N'failed') AND m.locked_until > @now THEN 1 ELSE 0 END
          FROM (SELECT block_id, ordering_key, key_hash, 1 AS due
                  FROM (SELECT TOP (@max_blocks) block_id, ordering_key, key_hash
                          FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake))
                         WHERE target_broker = @broker AND shard = @shard AND wake_at <= @now
                         ORDER BY wake_at) AS due
                 UNION ALL
                SELECT block_id, ordering_key, key_hash, 0
                  FROM (SELECT TOP (@max_blocks) block_id, ordering_key, key_hash
                          FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake))
                         WHERE target_broker = @broker AND shard = @shard AND wake_at IS NULL
                         ORDER BY block_id) AS back) AS found
          LEFT JOIN app.outbox AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = found.block_id;
        INSERT INTO @blocks (block_id, due, done, waits, scheduled)
        SELECT TOP (@admits) s.id, 0, 0, 0, 1
          FROM app.outbox AS s WITH (INDEX(outbox_scheduled), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE s.target_broker = @broker AND s.shard = @shard AND s.available_at IS NOT NULL AND s.available_at <= @now
           AND NOT EXISTS (SELECT 1 FROM @blocks AS b WHERE b.block_id = s.id)
         ORDER BY s.available_at;
        INSERT INTO @followers (block_id, id)
        SELECT done.block_id, follower.id
          FROM (SELECT TOP (@max_done) block_id, key_hash FROM @blocks WHERE done = 1 AND ordering_key IS NOT NULL ORDER BY block_id) AS done
         CROSS APPLY (SELECT COUNT(*) AS followers
                        FROM (SELECT TOP (@max_followers) m.id
                                FROM app.outbox AS m WITH (INDEX(outbox_deferred_key))
                               WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.shard = @shard AND m.deferred = 1 AND m.finished_at IS NULL
                                 AND m.id > done.block_id
                               ORDER BY m.id) AS next_ones) AS behind
         CROSS APPLY (SELECT TOP (@max_followers) m.id
                        FROM app.outbox AS m WITH (INDEX(outbox_deferred_key))
                       WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.shard = @shard AND m.deferred = 1 AND m.finished_at IS NULL
                         AND m.id > CASE WHEN behind.followers = @max_followers THEN done.block_id ELSE 0 END
                       ORDER BY m.id) AS follower;
    END;
    IF @unordered = 1
    BEGIN
        INSERT INTO @win (id, held, leased, waits, crashes)
        SELECT TOP (@window) id, 0, CASE WHEN status = N'processing' THEN 1 ELSE 0 END, 0, crashes
          FROM app.outbox WITH (INDEX(outbox_open), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
           AND (locked_until IS NULL OR locked_until <= @now)
         ORDER BY id;
        IF @@ROWCOUNT < @window
            SET @waiting = (SELECT COUNT(*)
                              FROM (SELECT TOP (20000) status, locked_until
                                      FROM app.outbox WITH (INDEX(outbox_open), NOLOCK)
                                     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                                     ORDER BY id) AS head
                             WHERE status <> N'processing' AND locked_until > @now);
        SET @blocked = CASE WHEN EXISTS (SELECT 1
                                         FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake), NOLOCK)
                                        WHERE target_broker = @broker)
                              OR EXISTS (SELECT 1
                                           FROM app.outbox WITH (INDEX(outbox_scheduled), NOLOCK)
                                          WHERE target_broker = @broker AND shard = @shard AND available_at IS NOT NULL AND available_at <= @now)
                            THEN 1 ELSE 0 END;
    END
    ELSE IF @found_version IS NOT NULL
    BEGIN
        INSERT INTO @settled (id)
        SELECT TOP (@window) id
          FROM app.outbox WITH (INDEX(outbox_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
         ORDER BY id;
        SET @blocked = CASE WHEN EXISTS (SELECT 1
                                         FROM app.outbox_key_blocks WITH (INDEX(outbox_blocks_wake), NOLOCK)
                                        WHERE target_broker = @broker)
                              OR EXISTS (SELECT 1
                                           FROM app.outbox WITH (INDEX(outbox_scheduled), NOLOCK)
                                          WHERE target_broker = @broker AND shard = @shard AND available_at IS NOT NULL AND available_at <= @now)
                            THEN 1 ELSE 0 END;
        INSERT INTO @win (id, ordering_key, held, leased, waits, crashes, block_id)
        SELECT TOP (@window) m.id
             , m.ordering_key
             , CASE WHEN s.id IS NULL THEN 1 ELSE 0 END
             , CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
             , CASE WHEN m.locked_until > @now THEN 1 ELSE 0 END
             , m.crashes
             , CASE WHEN @blocked = 1
                    THEN (SELECT w.block_id
                            FROM app.outbox_key_blocks AS w WITH (INDEX(outbox_blocks_key), FORCESEEK)
                           WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                             AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', m.ordering_key)) AND w.shard = @shard) END
          FROM app.outbox AS m WITH (INDEX(outbox_open), NOLOCK)
          LEFT JOIN @settled AS s ON s.id = m.id
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
         ORDER BY m.id;
    END;
    SET @seen = (SELECT COUNT(*) FROM @win);
    IF NOT EXISTS (SELECT 1 FROM @win WHERE held = 1 OR leased = 1 OR waits = 1 OR crashes > 0 OR block_id < id)
    BEGIN
        INSERT INTO @chosen (id)
        SELECT TOP (@limit) id FROM @win ORDER BY id;
        IF @bytes >= COALESCE((SELECT SUM(CONVERT(bigint, DATALENGTH(m.payload)) + COALESCE(DATALENGTH(m.headers), 0))
                                 FROM @chosen AS c
                                INNER JOIN app.outbox AS m WITH (FORCESEEK, NOLOCK) ON m.id = c.id), 0)
            SET @simple = 1;
        ELSE
            DELETE FROM @chosen;
    END;
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
     WHERE m.status IN (N'pending', N'failed', N'processing') AND m.deferred = 0 AND m.available_at IS NULL
       AND (m.locked_until IS NULL OR m.locked_until <= @now);
    IF @unordered = 0 AND (SELECT COUNT(*) FROM @claimed) <> (SELECT COUNT(*) FROM @chosen)
        THROW 50123, N'a row of app.outbox was changed while it was being claimed', 1;
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT CONVERT(bit, CASE WHEN @unordered = 0 AND @found_version IS NULL THEN 1 ELSE 0 END) AS fanout_busy
     , @simple AS simple
     , @seen AS seen
     , @waiting AS waiting
     , COALESCE(@found_version, 0) AS version
     , @blocked AS blocked;
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
SELECT block_id AS fanout_block
     , COALESCE(ordering_key, N'') AS ordering_key
     , CONVERT(bit, CASE WHEN ordering_key IS NULL THEN 0 ELSE 1 END) AS has_key
     , due
     , done
     , waits
     , scheduled
  FROM @blocks
 WHERE done IS NOT NULL
 ORDER BY block_id;
SELECT block_id AS fanout_follower
     , id
  FROM @followers
 ORDER BY block_id, id;
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
