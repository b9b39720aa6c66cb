-- Where order is off, a claim needs the shard's lock only to bring deferred rows back. When somebody else has it, they come
-- the next time. @claim_lock the shard's lock
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':', @claim_lock);
EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
IF @granted < -1
    THROW 50122, N'the lock of a shard of {{table}} was not granted', 1;
IF @granted >= 0
BEGIN
    SET @now = SYSUTCDATETIME();
{{wake}}
END;
