-- Take a lock that belongs to the session, if it is free. @lock
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':', @lock);
EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;
SELECT @granted AS fanout_granted;
