-- One process migrates a table at a time. @p1 what to lock.
DECLARE @granted int;
EXEC @granted = sp_getapplock @Resource = @p1, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0
    THROW 50122, N'another process has been migrating {{table}} for a minute', 1;
