-- Extend a lease that is still ours. Runs under the shard's lock, so that no claim sees half of it.
-- @broker, @shard, @claim_lock the shard's lock, @token, @first, @last, @lease_seconds, @lease_micros
-- The rows are found by a dirty read, which waits for nobody who is writing among them, and tested again by the update.
-- Plan: one range scan of {{name}}_open with lookups, one seek of {{name}}_pkey per row.
DECLARE @leased TABLE (id bigint NOT NULL);
DECLARE @renewed_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':', @claim_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
    IF @granted < 0
        THROW 50122, N'the lock of a shard of {{table}} was not granted in time', 1;
    SET @now = SYSUTCDATETIME();
    INSERT INTO @leased (id)
    SELECT id
      FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0
       AND id BETWEEN @first AND @last
       AND lock_token = CONVERT(uniqueidentifier, @token) AND status = N'processing';
    UPDATE m
       SET locked_until = DATEADD(MICROSECOND, @lease_micros, DATEADD(SECOND, @lease_seconds, @now))
      FROM @leased AS l
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id
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
