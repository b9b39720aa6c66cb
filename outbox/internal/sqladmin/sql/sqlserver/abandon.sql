-- Abandon rows in the name of an operator. Runs under the shards' locks.
-- @lock_brokers, @ids, @statuses, @waiting: see part_lock_shards.sql and part_pick.sql; @error is what last_error becomes, up to the time and
-- the number of attempts, which stand last
-- Plan: the rows by {{name}}_pkey, the blocks by {{name}}_blocks_pkey.
DECLARE @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
{{include part_pick}}
    -- Blocks of which the row is abandoned have nothing to wait for: the next claim moves them on.
    UPDATE w
       SET wake_at = NULL
         , reason  = N'backoff'
      FROM @picked AS p
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = p.id;
    SET @error = CONCAT(@error, N'"', REPLACE(CONVERT(nvarchar(30), @now, 121), N' ', N'T'), N'Z","attempt":');
    UPDATE m
       SET status       = N'abandoned'
         , finished_at  = @now
         , locked_until = NULL
         , locked_by    = NULL
         , lock_token   = NULL
         , isolated     = 0
         , deferred     = 0
         , last_error   = CONCAT(@error, m.attempts, N'}')
      FROM @picked AS p
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = p.id;
    SET @operated_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @operated_rows AS fanout_operated;
