-- Take rows out of the way of claims, and make the first of each key that waits its block.
-- @broker, @shard, @decided version of the decision, @blocks ids of the rows that become blocks and @rows of all that leave, JSON lists, at most
-- 4,000 so that the update stays below the 5,000 locks at which SQL Server thinks of locking the table; @unordered: each of the blocks waits alone
-- Rows that another transaction is writing are passed over: one behind a block waits whether it is deferred or not; one that was to become a block breaks the
-- deferral off, to be decided anew, as does one that another transaction has claimed or whose time has come. UPDLOCK keeps off claims without order, which
-- do not ask for the shard's lock.
-- Plan: one seek of {{name}}_pkey and of {{name}}_blocks_pkey per id.
DECLARE @blocking TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @leaving TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @waiting TABLE (
    id           bigint           NOT NULL PRIMARY KEY,
    message_id   uniqueidentifier NOT NULL,
    ordering_key nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL,
    until        datetime2(6)     NOT NULL
);
DECLARE @deferred_rows int;
INSERT INTO @blocking (id) SELECT id FROM OPENJSON(@blocks) WITH (id bigint '$');
INSERT INTO @leaving (id) SELECT id FROM OPENJSON(@rows) WITH (id bigint '$');
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock}}
{{include part_unchanged}}
{{include part_turn}}
    SET @now = SYSUTCDATETIME();
    INSERT INTO @waiting (id, message_id, ordering_key, until)
    SELECT m.id
         , m.message_id
         , CASE WHEN @unordered = 0 THEN m.ordering_key END
         , m.locked_until
      FROM @blocking AS b
     INNER JOIN {{table}} AS m WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = b.id
     WHERE m.status IN (N'pending', N'failed') AND m.deferred = 0 AND m.available_at IS NULL AND m.locked_until > @now;
    SET @deferred_rows = @@ROWCOUNT;
    IF @deferred_rows <> (SELECT COUNT(*) FROM @blocking)
        THROW 50123, N'a row of {{table}} was changed while it was being deferred', 1;
    UPDATE w
       SET wake_at = b.until, reason = N'backoff', ordering_key = COALESCE(w.ordering_key, b.ordering_key)
      FROM @waiting AS b
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = b.id AND w.shard = @shard;
    INSERT INTO {{table}}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
    SELECT @broker, @shard, b.ordering_key, b.id, b.message_id, b.until, N'backoff'
      FROM @waiting AS b
     WHERE NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w WITH (FORCESEEK) WHERE w.block_id = b.id AND w.shard = @shard);
    UPDATE m
       SET deferred = 1
      FROM @leaving AS l
     INNER JOIN {{table}} AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.status IN (N'pending', N'failed') AND m.deferred = 0 AND m.available_at IS NULL;
    SET @deferred_rows = @@ROWCOUNT;
{{include part_commit}}
SELECT @deferred_rows AS fanout_deferred;
