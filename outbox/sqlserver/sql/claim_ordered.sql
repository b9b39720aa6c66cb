-- Claim the head of a shard, keeping the order of each key. What was claimed is read by fetch.sql, after the commit.
-- @broker, @shard, @claim_lock the shard's lock, @window, @limit, @bytes of payload, @worker, @token, @lease_seconds, @lease_micros, @shared
--
-- The claim must see of each key every earlier open row, and no single read of SQL Server promises that. READ COMMITTED
-- reads row by row: a transaction that writes two rows of a key while the scan stands between them shows the second
-- without the first, and so does READPAST while a commit lets go of its locks one by one. Waiting for every row that
-- somebody is writing would stop the shard for as long as the slowest business transaction. READ_COMMITTED_SNAPSHOT would
-- do, but is not ours to switch on. So the shard is read twice, which holds with that option and without:
--   1. which rows are ready: committed, locked by nobody, due;
--   2. afterwards, by a dirty read, which rows there are at all. A row that is there and not known as ready, because its
--      transaction is under way or ended after the first read, is held and holds the followers of its key.
-- Whatever is written before a row of the first read was committed is there for the second: nothing is passed over. Dirty
-- data decides only that something waits. That the entries of {{name}}_open never move keeps the dirty read complete.
-- What it cannot see is an open row that somebody has finished or deferred by hand, in a transaction that is rolled back.
--
-- Of a key's earlier rows some stand outside of the window. Behind a block: blocks of the shard's keys change only under its
-- lock, so reads that wait for nobody else's are exact. In the shard of another priority: that is read dirty, too, and like
-- the window after the first read. A shard of low priority lets keys wait for the first open row of the normal shard.
--
-- Plan: two range scans of {{name}}_open, covered; one sort of the window by key; one seek of {{name}}_pkey per claimed
-- row; one seek each of {{name}}_blocks_key and {{name}}_backfill per row of the window, only where there are blocks and
-- low priorities. The indexes are named, as statistics of a queue are always stale: the planner would follow {{name}}_pkey
-- through all published rows because of ORDER BY id. Literals, not parameters, match the filters of the indexes.
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
    -- A statement of its own: each of the following sees what was committed before the lock was granted.
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':', @claim_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
    IF @granted < -1
        THROW 50122, N'the lock of a shard of {{table}} was not granted', 1;
    IF @granted = -1
        SET @busy = 1;
    ELSE
    BEGIN
        SET @now = SYSUTCDATETIME();

{{wake}}
        INSERT INTO @ready (id)
        SELECT id
          FROM (SELECT TOP (@window) id, locked_until, available_at
                  FROM {{table}} WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
                 ORDER BY id) AS head
         WHERE (locked_until IS NULL OR locked_until <= @now)
           AND (available_at IS NULL OR available_at <= @now);

        SET @blocked = CASE WHEN EXISTS (SELECT 1
                                         FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake), NOLOCK)
                                        WHERE target_broker = @broker) THEN 1 ELSE 0 END;
        IF @shard < 4 AND EXISTS (SELECT 1
                                   FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
                                  WHERE target_broker = @broker AND shard = @shard + 4 AND finished_at IS NULL AND deferred = 0)
            SET @mixed = 1;
        IF @shard BETWEEN 4 AND 7
            SELECT TOP (1) @ahead = id
                         , @ahead_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', ordering_key))
                         , @ahead_waits = CASE WHEN status <> N'processing' AND (locked_until > @now OR available_at > @now)
                                               THEN 1 ELSE 0 END
              FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
             WHERE target_broker = @broker AND shard = @shard - 4 AND finished_at IS NULL AND deferred = 0
             ORDER BY id;

        -- It waits also behind a block, or for an earlier row of low priority that waits for a time.
        IF EXISTS (SELECT 1
                     FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
                    WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                      AND w.key_hash = @ahead_hash AND w.block_id < @ahead)
            SET @ahead_waits = 1;
        IF EXISTS (SELECT 1
                     FROM (SELECT TOP (1) low.status, low.locked_until, low.available_at
                             FROM {{table}} AS low WITH (INDEX({{name}}_backfill), FORCESEEK, NOLOCK)
                            WHERE low.target_broker = @broker AND low.priority < 0 AND low.finished_at IS NULL
                              AND low.key_hash = @ahead_hash AND low.id < @ahead
                            ORDER BY low.id) AS earliest
                    WHERE status <> N'processing' AND (locked_until > @now OR available_at > @now))
            SET @ahead_waits = 1;

        -- The first open rows in order, held ones included.
        INSERT INTO @win (id, ordering_key, apart, key_hash, clear, rests, low_rests, in_hand, suspicion)
        SELECT TOP (@window) m.id
             , m.ordering_key
             -- = ignores trailing spaces, the length does not; and a row without a key is a key of its own.
             , CASE WHEN m.ordering_key IS NULL THEN m.id ELSE DATALENGTH(m.ordering_key) END
             , CASE WHEN @blocked = 1 OR @mixed = 1 THEN CONVERT(binary(32), HASHBYTES('SHA2_256', m.ordering_key)) END
             , CASE WHEN r.id IS NULL OR (m.ordering_key IS NOT NULL AND m.id > @ahead) THEN 0 ELSE 1 END
             , CASE WHEN m.status <> N'processing' AND (m.locked_until > @now OR m.available_at > @now) THEN 1 ELSE 0 END
             , 0
             , CASE WHEN m.status = N'processing' AND m.locked_until > @now THEN 1 ELSE 0 END
             , m.crashes + CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
          FROM {{table}} AS m WITH (INDEX({{name}}_open), NOLOCK)
          LEFT JOIN @ready AS r ON r.id = m.id
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0
         ORDER BY m.id;
        SET @seen = @@ROWCOUNT;

        IF @blocked = 1
            UPDATE win
               SET clear = 0, rests = 1
              FROM @win AS win
             WHERE EXISTS (SELECT 1
                             FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
                            WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                              AND w.key_hash = win.key_hash AND w.block_id < win.id);
        IF @mixed = 1
        BEGIN
            -- The first such row of low priority decides whether this one waits for a time, too.
            UPDATE win
               SET clear = 0, low_rests = low.rests
              FROM @win AS win
             CROSS APPLY (SELECT TOP (1) CASE WHEN m.status <> N'processing' AND (m.locked_until > @now OR m.available_at > @now)
                                              THEN 1 ELSE 0 END AS rests
                            FROM {{table}} AS m WITH (INDEX({{name}}_backfill), FORCESEEK, NOLOCK)
                           WHERE m.target_broker = @broker AND m.priority < 0 AND m.finished_at IS NULL
                             AND m.key_hash = win.key_hash AND m.id < win.id
                           ORDER BY m.id) AS low;
            IF EXISTS (SELECT 1 FROM @win WHERE low_rests = 1)
                SET @ahead_waits = 1;
        END;

        -- A window in which every row is ready and has never crashed needs no judgement: no row in it holds another one back.
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
            -- Without the followers of a row that must wait, and without keys that somebody else has claimed.
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

            -- Rows whose lease ran out are claimed apart from the others, and fewer at a time after each crash, until the one
            -- that kills its process stands alone.
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
{{bytes}}
        IF @chosen_rows = 1 AND @shared = 0 -- else others of the process have claimed rows
            SET @alone = 1;

        IF @chosen_rows > 0
        BEGIN
            -- INTO, because OUTPUT alone is refused (error 334) on a table that has triggers.
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
             INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
             WHERE m.status IN (N'pending', N'failed', N'processing') AND m.deferred = 0
               AND (m.locked_until IS NULL OR m.locked_until <= @now);
            -- A row that somebody changed meanwhile without the shard's lock was passed over, and the rows behind it must not
            -- go out before it: break the claim off, to be made anew.
            IF (SELECT COUNT(*) FROM @claimed) <> @chosen_rows
                THROW 50123, N'a row of {{table}} was changed while it was being claimed', 1;
        END;
    END;
    -- Losing the commit of a claim only repeats a send, so it need not wait for the disk. It has an effect where the
    -- database has DELAYED_DURABILITY = ALLOWED.
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
