-- Lock a message until the transaction ends: a concurrent copy waits. A lock of the gap where the
-- row would stand, which is what HOLDLOCK takes, would keep all new messages of the consumer
-- waiting. Two messages of one hash wait for each other, and no more. @p1 consumer, @p2 message id,
-- @p4 source.
DECLARE @resource nvarchar(255), @patience int = @@LOCK_TIMEOUT, @granted int, @number int;
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':message:',
    CONVERT(bigint, SUBSTRING(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(10), @p4, NCHAR(10), CONVERT(uniqueidentifier, @p2))), 1, 8)));
EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = @patience;
IF @granted < 0
BEGIN
    SET @number = CASE @granted WHEN -3 THEN 51205 ELSE 50122 END; -- a deadlock, or waited for too long
    THROW @number, N'the lock of a message of {{table}} was not granted', 1;
END;
