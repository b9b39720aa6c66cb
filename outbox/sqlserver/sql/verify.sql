-- Which of the rows that were inserted as claimed are still ours, and which of them may be published? It runs after their commit.
-- @broker, @shard, @token, @messages ids as JSON, @backlog how many other open rows may stand before
-- them, @unordered whether order is off
--
-- No read of SQL Server shows one moment of the table, see part_window.sql. Under the shard's lock nobody claims, releases,
-- abandons, defers or brings back rows of its keys, so that a dirty read of them is exact, but for two things: new rows, which may
-- be rolled back and then have made us wait for nothing; and rows that are being marked as published, which have been delivered
-- whatever becomes of the mark. Ours are read as committed: what was rolled back is not there.
-- Plan: one seek of {{name}}_once and one of {{name}}_pkey per row; one range scan of {{name}}_open, covered, that ends after so many others;
-- one seek each of {{name}}_blocks_key and {{name}}_backfill per row with a key.
DECLARE @mine TABLE (
    id           bigint           NOT NULL PRIMARY KEY,
    message_id   uniqueidentifier NOT NULL,
    shard         int              NOT NULL,
    ordering_key nvarchar(512)   COLLATE Latin1_General_100_BIN2 NULL,
    key_hash     binary(32)       NULL,
    attempts     int              NOT NULL,
    crashes      int              NOT NULL,
    created_at   datetime2(6)     NOT NULL,
    expired      bit              NOT NULL,
    leased       bit              NOT NULL,
    clear        bit              NOT NULL
);
DECLARE @others TABLE (id bigint NOT NULL PRIMARY KEY, key_hash binary(32) NULL);
DECLARE @last bigint, @others_rows int, @paused bit = 0;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock}}
    SET @now = SYSUTCDATETIME();
    INSERT INTO @mine (id, message_id, shard, ordering_key, key_hash, attempts, crashes, created_at, expired, leased, clear)
    SELECT m.id, m.message_id, m.shard, m.ordering_key, CONVERT(binary(32), HASHBYTES('SHA2_256', m.ordering_key)), m.attempts, m.crashes, m.created_at
         , CASE WHEN m.expires_at <= @now THEN 1 ELSE 0 END
         , CASE WHEN m.locked_until > @now THEN 1 ELSE 0 END
         , CASE WHEN m.locked_until > @now AND m.shard = @shard THEN 1 ELSE 0 END
      FROM (SELECT DISTINCT CONVERT(uniqueidentifier, message_id) AS message_id
              FROM OPENJSON(@messages) WITH (message_id nvarchar(36) '$')) AS asked
     INNER JOIN {{table}} AS m WITH (READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON m.message_id = asked.message_id AND m.target_broker = @broker
     WHERE m.lock_token = CONVERT(uniqueidentifier, @token) AND m.status = N'processing';
    IF EXISTS (SELECT 1 FROM {{table}}_pauses WITH (READCOMMITTEDLOCK, ROWLOCK) WHERE target_broker = @broker)
        SET @paused = 1;

    IF @unordered = 0
    BEGIN
        -- What stands before the last of ours, whoever has it, and ours whose lease is over: one more than may.
        SELECT @last = MAX(id) FROM @mine;
        INSERT INTO @others (id, key_hash)
        SELECT TOP (@backlog + 1) m.id, CONVERT(binary(32), HASHBYTES('SHA2_256', m.ordering_key))
          FROM {{table}} AS m WITH (INDEX({{name}}_open), NOLOCK)
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.id < @last
           AND NOT EXISTS (SELECT 1 FROM @mine AS own WHERE own.id = m.id AND own.leased = 1)
         ORDER BY m.id;
        SET @others_rows = @@ROWCOUNT;
        -- In the shard, behind a block, or in the shard of low priority.
        UPDATE mine
           SET clear = 0
          FROM @mine AS mine
         WHERE mine.ordering_key IS NOT NULL
           AND (@others_rows > @backlog
                OR EXISTS (SELECT 1 FROM @others AS o WHERE o.key_hash = mine.key_hash AND o.id < mine.id)
                OR EXISTS (SELECT 1
                             FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
                            WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                              AND w.key_hash = mine.key_hash AND w.block_id < mine.id)
                OR EXISTS (SELECT 1
                             FROM {{table}} AS low WITH (INDEX({{name}}_backfill), FORCESEEK, NOLOCK)
                            WHERE low.target_broker = @broker AND low.priority < 0 AND low.finished_at IS NULL
                              AND low.key_hash = mine.key_hash AND low.id < mine.id));
    END;
{{include part_commit}}
SELECT id AS fanout_handed
     , LOWER(CONVERT(char(36), message_id)) AS message_id
     , shard
     , attempts
     , crashes
     , created_at
     , expired
     , CONVERT(bit, CASE WHEN clear = 1 AND @paused = 0 THEN 1 ELSE 0 END) AS clear
  FROM @mine
 ORDER BY id;
