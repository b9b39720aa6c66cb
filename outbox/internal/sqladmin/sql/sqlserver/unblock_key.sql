-- Let a key go on that waits for an operator, in each shard in which it does: the next claims move its blocks on. Runs under the shards' locks.
-- @lock_brokers see part_lock_shards.sql, @broker, @key
-- Plan: the key's blocks by {{name}}_blocks_key.
DECLARE @released_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
    UPDATE w
       SET wake_at = NULL
         , reason  = N'backoff'
      FROM {{table}}_key_blocks AS w WITH (ROWLOCK, INDEX({{name}}_blocks_key), FORCESEEK)
     WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
       AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', CONVERT(nvarchar(1024), @key)))
       AND DATALENGTH(w.ordering_key) = DATALENGTH(@key)
       AND w.reason = N'operator' AND w.wake_at = '9999-12-31';
    SET @released_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @released_rows AS fanout_released;
