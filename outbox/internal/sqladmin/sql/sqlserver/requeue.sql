-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the block of their key in their shard. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs under the shards' locks.
-- @ttl_seconds and @ttl_micros: a new time to live, or 0
-- @lock_brokers, @ids, @statuses, @waiting: see part_lock_shards.sql and part_pick.sql
-- Plan: the rows by {{name}}_pkey, the blocks by {{name}}_blocks_key and {{name}}_blocks_pkey.
DECLARE @first TABLE (
    id            bigint           NOT NULL PRIMARY KEY,
    target_broker nvarchar(128)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_hash      binary(32)       NOT NULL,
    shard         int              NOT NULL
);
DECLARE @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
{{include part_pick}}
    -- Rows of keys that have a block in their shard are about to come back. The first of them, where it stands at the block or before
    -- it, becomes the block and is let into the claim's way; so what comes later waits for it, and can be deferred while it waits. A
    -- key that waits for an operator stays as it is, unless the row that it waits behind is among those that come back.
    INSERT INTO @first (id, target_broker, key_hash, shard)
    SELECT MIN(m.id), m.target_broker, m.key_hash, m.shard
      FROM @picked AS p
     INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = p.id
     WHERE m.ordering_key IS NOT NULL
     GROUP BY m.target_broker, m.key_hash, m.shard;
    -- They may be blocks in a shard that is no longer theirs, since they were given another priority. What waits behind them there
    -- waits until they are done.
    UPDATE w
       SET wake_at = NULL
         , reason  = N'backoff'
      FROM @picked AS p
     INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = p.id
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = m.id
     WHERE w.shard <> m.shard;
    UPDATE w
       SET block_id         = m.id
         , block_message_id = m.message_id
         , wake_at         = NULL
         , reason          = N'backoff'
      FROM @first AS f
     INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = f.id
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, INDEX({{name}}_blocks_key), FORCESEEK)
        ON w.target_broker = f.target_broker AND w.key_hash = f.key_hash AND w.shard = f.shard AND w.ordering_key IS NOT NULL
     WHERE f.id <= w.block_id
       AND (w.reason <> N'operator' OR w.wake_at IS NULL OR w.wake_at <> '9999-12-31'
            OR EXISTS (SELECT 1 FROM @picked AS p WHERE p.id = w.block_id));
    UPDATE m
       SET status       = N'pending'
         , published_at = NULL
         , finished_at  = NULL
         , available_at = NULL
         , expires_at   = CASE WHEN @ttl_seconds > 0 OR @ttl_micros > 0
                               THEN DATEADD(MICROSECOND, @ttl_micros, DATEADD(SECOND, @ttl_seconds, @now))
                               WHEN m.expires_at > @now THEN m.expires_at END
         , locked_until = NULL
         , locked_by    = NULL
         , lock_token   = NULL
         , attempts     = 0
         , crashes      = 0
         , isolated     = 0
         , deferred     = CASE WHEN EXISTS (SELECT 1
                                              FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
                                             WHERE w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.shard = m.shard
                                               AND w.ordering_key IS NOT NULL AND w.block_id < m.id) THEN 1 ELSE 0 END
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
