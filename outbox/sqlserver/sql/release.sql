-- Give it back. @lock
SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':', @lock);
EXEC @granted = sp_releaseapplock @Resource = @resource, @LockOwner = 'Session';
SELECT @granted AS fanout_granted;
