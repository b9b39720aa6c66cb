-- Take what waits at the head of a shard out of the claim's way: rows in backoff or scheduled for later, and whatever stands
-- behind them in their key. Rows in somebody's hands stay: they are soon done. Runs under the shard's lock, waiting for it.
-- @broker, @shard, @claim_lock the shard's lock, @window how many open rows to look at, at most 4,000 so that the update stays
-- below the 5,000 locks at which SQL Server thinks of locking the table; @unordered: every row waits alone
-- Rows that somebody is writing are passed over, in the look and in the update: a row behind a block waits whether it is
-- deferred or not.
-- Plan: one range scan of {{name}}_open, covered; one sort by key; one seek of {{name}}_pkey per row.
DECLARE @head TABLE (
    id           bigint         NOT NULL PRIMARY KEY,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    apart        bigint         NOT NULL,
    leased       bit            NOT NULL,
    until        datetime2(6)   NULL,
    scheduled    bit            NOT NULL,
    block_id      bigint         NULL
);
DECLARE @blocks TABLE (
    id           bigint         NOT NULL PRIMARY KEY,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    until        datetime2(6)   NOT NULL,
    reason       nvarchar(16)   NOT NULL
);
DECLARE @behind TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @deferred_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':', @claim_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
    IF @granted < 0
        THROW 50122, N'the lock of a shard of {{table}} was not granted in time', 1;
    SET @now = SYSUTCDATETIME();

    INSERT INTO @head (id, ordering_key, apart, leased, until, scheduled)
    SELECT TOP (@window) id
         , CASE WHEN @unordered = 0 THEN ordering_key END
         -- = ignores trailing spaces, the length does not; and a row that waits alone is a key of its own.
         , CASE WHEN @unordered = 1 OR ordering_key IS NULL THEN id ELSE DATALENGTH(ordering_key) END
         , CASE WHEN status = N'processing' THEN 1 ELSE 0 END
         , CASE WHEN status = N'processing' THEN NULL
                WHEN locked_until > @now AND (available_at IS NULL OR available_at <= locked_until) THEN locked_until
                WHEN available_at > @now THEN available_at END
         , CASE WHEN available_at > @now THEN 1 ELSE 0 END
      FROM {{table}} WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
     ORDER BY id;

    -- The key's block, where it has one.
    IF @unordered = 0 AND EXISTS (SELECT 1
                                    FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake), NOLOCK)
                                   WHERE target_broker = @broker)
        UPDATE h
           SET block_id = w.block_id
          FROM @head AS h
         INNER JOIN {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
            ON w.target_broker = @broker AND w.ordering_key IS NOT NULL
           AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', h.ordering_key));

    -- The first row of each key that must wait becomes its block, unless it has one.
    INSERT INTO @blocks (id, ordering_key, until, reason)
    SELECT id, ordering_key, until, CASE WHEN scheduled = 1 THEN N'scheduled' ELSE N'backoff' END
      FROM (SELECT id, ordering_key, until, scheduled, ROW_NUMBER() OVER (PARTITION BY ordering_key, apart ORDER BY id) AS place
              FROM @head
             WHERE until IS NOT NULL AND (block_id IS NULL OR block_id = id)) AS resting
     WHERE place = 1;
    UPDATE w
       SET wake_at = g.until, reason = g.reason, ordering_key = COALESCE(w.ordering_key, g.ordering_key)
      FROM @blocks AS g
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = g.id;
    -- Message ids never change, so a dirty read of them is exact. A row that was removed meanwhile is a block all the same:
    -- what is deferred behind it must come back.
    INSERT INTO {{table}}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
    SELECT @broker, @shard, g.ordering_key, g.id, COALESCE(m.message_id, CONVERT(uniqueidentifier, N'00000000-0000-0000-0000-000000000000')), g.until, g.reason
      FROM @blocks AS g
      LEFT JOIN {{table}} AS m WITH (NOLOCK, FORCESEEK) ON m.id = g.id
     WHERE NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w WITH (FORCESEEK) WHERE w.block_id = g.id);

    -- Behind a block of before, or behind one of those above.
    INSERT INTO @behind (id)
    SELECT id
      FROM (SELECT h.id
                 , h.leased
                 , h.block_id
                 , MIN(COALESCE(g.id, CONVERT(bigint, 9223372036854775807))) OVER (PARTITION BY h.ordering_key, h.apart) AS new_block_id
              FROM @head AS h
              LEFT JOIN @blocks AS g ON g.id = h.id) AS placed
     WHERE leased = 0 AND (id > block_id OR id >= new_block_id);
    UPDATE m
       SET deferred = 1
      FROM @behind AS b
     INNER JOIN {{table}} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST, FORCESEEK) ON m.id = b.id
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
