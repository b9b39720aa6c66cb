-- Take the locks of shards, waiting for them, in the order of their names: so operators never wait for each other in a circle,
-- and everybody else holds one of them at a time. A part of a transaction. @locks a JSON list
DECLARE @shards TABLE (lock nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @shard_lock nvarchar(255);
INSERT INTO @shards (lock)
SELECT DISTINCT lock FROM OPENJSON(@locks) WITH (lock nvarchar(255) '$');
SET @shard_lock = (SELECT MIN(lock) FROM @shards);
WHILE @shard_lock IS NOT NULL
BEGIN
    SET @resource = CONCAT(N'fanout:', OBJECT_ID(N'{{table}}'), N':', @shard_lock);
    EXEC @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
    IF @granted < 0
        THROW 50122, N'the lock of a shard of {{table}} was not granted in time', 1;
    SET @shard_lock = (SELECT MIN(lock) FROM @shards WHERE lock > @shard_lock);
END;
