-- Retry, abandon or release rows, if they are still ours. Runs under the shard's lock, waiting for it: the place of a
-- failed head and of its released followers must change in one step for the next window.
-- @completed_token, @completed_broker, @completed_shard, @block_abandoned: the key of an abandoned row waits in its shard until an operator acts,
-- @other [{"i": id, "s": new status, "a": attempts spent, "d": delay in seconds, "u": and microseconds, "e": error, "g": 1 where the key
-- of an abandoned row goes on all the same}]
-- Plan: as in mark_published.sql; one seek of {{name}}_blocks_key and one range scan of {{name}}_deferred_key per row that blocks its key.
DECLARE @outcomes TABLE (
    id            bigint        NOT NULL,
    status        nvarchar(16)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    spent         int           NOT NULL,
    delay_seconds int           NOT NULL,
    delay_micros  int           NOT NULL,
    error         nvarchar(max) NULL,
    goes_on       int           NULL
);
DECLARE @blocking TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @back TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @other_rows int;
INSERT INTO @outcomes (id, status, spent, delay_seconds, delay_micros, error, goes_on)
SELECT id, status, spent, delay_seconds, delay_micros, error, goes_on
  FROM OPENJSON(@other)
       WITH (id bigint '$.i', status nvarchar(16) '$.s', spent int '$.a', delay_seconds int '$.d', delay_micros int '$.u',
             error nvarchar(max) '$.e', goes_on int '$.g');
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock for completed}}
    SET @now = SYSUTCDATETIME();
    IF @block_abandoned = 1 -- the first of each key and shard becomes the block
        INSERT INTO @blocking (id)
        SELECT MIN(m.id)
          FROM @outcomes AS o
         INNER JOIN {{table}} AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = o.id
         WHERE o.status = N'abandoned' AND o.goes_on IS NULL AND m.ordering_key IS NOT NULL
           AND m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing'
         GROUP BY m.target_broker, m.key_hash, m.shard;
    UPDATE m
       SET status       = o.status
         , finished_at  = CASE WHEN o.status = N'abandoned' THEN @now END
         , attempts     = m.attempts + CASE WHEN m.attempts < 1048575 THEN o.spent ELSE 0 END
         , crashes      = CASE WHEN o.spent > 0 THEN 0 ELSE m.crashes END -- it was sent and no process crashed with it
         , isolated     = 0
         , locked_by    = NULL
         , lock_token   = NULL
         , locked_until = CASE WHEN o.delay_seconds > 0 OR o.delay_micros > 0
                               THEN DATEADD(MICROSECOND, o.delay_micros, DATEADD(SECOND, o.delay_seconds, @now)) END
         , last_error   = COALESCE(o.error, m.last_error)
      FROM @outcomes AS o
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = o.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing';
    SET @other_rows = @@ROWCOUNT;
    IF EXISTS (SELECT 1 FROM @blocking)
    BEGIN
{{include part_turn for completed}}
        -- In place of the block that the key may have in the shard.
        UPDATE w
           SET block_id         = m.id
             , block_message_id = m.message_id
             , wake_at         = '9999-12-31'
             , reason          = N'operator'
             , since           = @now
          FROM @blocking AS p
         INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = p.id
         INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, INDEX({{name}}_blocks_key), FORCESEEK)
            ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.shard = m.shard AND w.ordering_key IS NOT NULL;
        INSERT INTO {{table}}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason, since)
        SELECT m.target_broker, m.shard, m.ordering_key, m.id, m.message_id, '9999-12-31', N'operator', @now
          FROM @blocking AS p
         INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = p.id
         WHERE NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w WITH (FORCESEEK) WHERE w.block_id = m.id AND w.shard = m.shard);
        -- A block of before gives way to the new one: an owner that was stopped can abandon a row while an earlier one of its
        -- key, which another transaction took over, is deferred. What is deferred before the new block has nothing to wait for but its
        -- own time.
        INSERT INTO @back (id)
        SELECT earlier.id
          FROM @blocking AS p
         INNER JOIN {{table}} AS g WITH (FORCESEEK) ON g.id = p.id
         INNER JOIN {{table}} AS earlier WITH (INDEX({{name}}_deferred_key), FORCESEEK)
            ON earlier.target_broker = g.target_broker AND earlier.key_hash = g.key_hash AND earlier.shard = g.shard AND earlier.id < g.id
         WHERE earlier.deferred = 1 AND earlier.finished_at IS NULL;
        UPDATE m
           SET deferred = 0
          FROM @back AS b
         INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = b.id
         WHERE m.deferred = 1;
    END;
{{include part_commit}}
SELECT @other_rows AS fanout_other;
