-- One migration at a time, until the end of the transaction. Parameter: name. It fails after a minute.
DECLARE @fanout_answer int;
EXEC @fanout_answer = sp_getapplock @Resource = @name, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @fanout_answer < 0
    RAISERROR(N'another migration holds the lock', 16, 1)
