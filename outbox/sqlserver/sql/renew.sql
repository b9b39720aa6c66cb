-- Extend a lease that is still ours. Under the shard's lock, so that no window sees half of it. One that was over is counted as a change: another transaction
-- may have decided about the rows of its keys.
-- @broker, @shard, @token, @first, @last, @lease_seconds, @lease_micros
-- The rows are found by a dirty read, which does not wait for writers among them, and tested again by the update.
-- Plan: one range scan of {{name}}_open with lookups, one seek of {{name}}_pkey per row.
DECLARE @leased TABLE (id bigint NOT NULL, late bit NOT NULL);
DECLARE @renewed_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock}}
    SET @now = SYSUTCDATETIME();
    INSERT INTO @leased (id, late)
    SELECT id, CASE WHEN locked_until <= @now THEN 1 ELSE 0 END
      FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
       AND id BETWEEN @first AND @last
       AND lock_token = CONVERT(uniqueidentifier, @token) AND status = N'processing';
    IF EXISTS (SELECT 1 FROM @leased WHERE late = 1)
    BEGIN
{{include part_turn}}
    END;
    UPDATE m
       SET locked_until = DATEADD(MICROSECOND, @lease_micros, DATEADD(SECOND, @lease_seconds, @now))
      FROM @leased AS l
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @token) AND m.status = N'processing';
    SET @renewed_rows = @@ROWCOUNT;
{{include part_commit}}
SELECT @renewed_rows AS fanout_renewed;
