SET NOCOUNT ON;
DECLARE @slot int, @resource nvarchar(255), @patience int = @@LOCK_TIMEOUT, @granted int, @number int, @problem nvarchar(400);
DECLARE @slots TABLE (slot int NOT NULL PRIMARY KEY);
INSERT INTO @slots (slot) SELECT CONVERT(int, value) FROM STRING_SPLIT(@p1, N',');
SET @slot = (SELECT MIN(slot) FROM @slots);
WHILE @slot IS NOT NULL
BEGIN
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'app.outbox_messages'), N':key:', @slot);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = @patience;
    IF @granted < 0
    BEGIN
        SET @problem = CONCAT(N'the lock of ordering keys of app.outbox_messages was not granted: sp_getapplock returned ', @granted,
            CASE @granted WHEN -1 THEN N' (timeout)' WHEN -2 THEN N' (cancelled)' WHEN -3 THEN N' (deadlock victim)' END);
        SET @number = CASE @granted WHEN -3 THEN 51205 ELSE 50122 END;
        THROW @number, @problem, 1;
    END;
    SET @slot = (SELECT MIN(slot) FROM @slots WHERE slot > @slot);
END;
