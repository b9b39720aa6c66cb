-- Claim the head of a shard where order is off: locked rows are passed over and nothing waits for anything. What was
-- claimed is read by fetch.sql, after the commit, which need not wait for the disk: see claim_ordered.sql.
-- @broker, @shard, @window, @limit, @bytes of payload, @worker, @token, @lease_seconds, @lease_micros, @shared; to bring deferred rows back @claim_lock
-- Plan: one range scan of {{name}}_open, covered; one seek of {{name}}_pkey per claimed row. UPDLOCK keeps other claims off
-- the chosen rows; READCOMMITTEDLOCK, because READPAST passes over nothing where READ_COMMITTED_SNAPSHOT reads versions. It
-- stands at the update, too: who changes a column that the index has not locks the row elsewhere.
DECLARE @seen int = 0, @waiting int = 0, @blocked bit, @suspicion int, @take bigint, @chosen_rows int = 0, @alone bit = 0, @cut bit = 0;
DECLARE @free TABLE (id bigint NOT NULL PRIMARY KEY, suspicion int NOT NULL);
DECLARE @chosen TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY);
BEGIN TRY
    BEGIN TRANSACTION;
{{wake}}
    SET @now = SYSUTCDATETIME();
    SET @take = CASE WHEN @window < @limit THEN @window ELSE @limit END;
    INSERT INTO @free (id, suspicion)
    SELECT TOP (@take) id
         , crashes + CASE WHEN status = N'processing' THEN 1 ELSE 0 END
      FROM {{table}} WITH (INDEX({{name}}_open), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
       AND (locked_until IS NULL OR locked_until <= @now)
       AND (available_at IS NULL OR available_at <= @now)
     ORDER BY id;
    SET @seen = @@ROWCOUNT;
    IF @seen < @take -- waiting rows were read in vain
        SET @waiting = (SELECT COUNT(*)
                          FROM (SELECT TOP (20000) status, locked_until, available_at
                                  FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
                                 WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
                                 ORDER BY id) AS head
                         WHERE status <> N'processing' AND (locked_until > @now OR available_at > @now));
    SET @blocked = CASE WHEN EXISTS (SELECT 1
                                     FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake), NOLOCK)
                                    WHERE target_broker = @broker) THEN 1 ELSE 0 END;

    -- As in claim_ordered.sql: suspects are claimed apart, and fewer at a time after each crash.
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
{{bytes}}
        IF @chosen_rows = 1 AND @shared = 0 -- else others of the process have claimed rows
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
         INNER JOIN {{table}} AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = c.id
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
