-- The rows that an operator's filter selects, without those that a worker has claimed, the first of them by id. It runs before any shard is locked; the rows are tested
-- again under the locks. Rows that another transaction is writing at this moment are passed over.
-- @limit, @broker or '', @statuses a JSON list, @message_ids a JSON list, none = any, and what part_find_where.sql
-- uses
-- Plan: one scan for each index that the statuses need ({{name}}_open, {{name}}_deferred_key and {{name}}_scheduled_ids, {{name}}_finished), within the
-- broker where one is named, and a lookup per row; seeks of {{name}}_once where message ids are. It is planned for its
-- arguments each time (RECOMPILE), so that what is not asked for costs nothing.
DECLARE @found TABLE (id bigint NOT NULL PRIMARY KEY, message_id uniqueidentifier NOT NULL, target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @wanted TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @ids TABLE (message_id uniqueidentifier NOT NULL PRIMARY KEY);
DECLARE @by_id bit = 0, @open bit = 0, @published bit = 0, @abandoned bit = 0;
INSERT INTO @wanted (status)
SELECT DISTINCT status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$');
IF EXISTS (SELECT 1 FROM @wanted WHERE status IN (N'pending', N'processing', N'failed'))
    SET @open = 1;
IF EXISTS (SELECT 1 FROM @wanted WHERE status = N'published')
    SET @published = 1;
IF EXISTS (SELECT 1 FROM @wanted WHERE status = N'abandoned')
    SET @abandoned = 1;
IF @message_ids <> N'[]'
BEGIN
    SELECT @by_id = 1, @open = 0, @published = 0, @abandoned = 0;
    INSERT INTO @ids (message_id)
    SELECT DISTINCT CONVERT(uniqueidentifier, message_id) FROM OPENJSON(@message_ids) WITH (message_id nvarchar(36) '$');
END;
SET @now = SYSUTCDATETIME();
INSERT INTO @found (id, message_id, target_broker)
SELECT TOP (@limit) m.id, m.message_id, m.target_broker
  FROM (SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM {{table}} WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @open = 1 AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM {{table}} WITH (INDEX({{name}}_deferred_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @open = 1 AND finished_at IS NULL AND deferred = 1 AND available_at IS NULL AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM {{table}} WITH (INDEX({{name}}_scheduled_ids), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @open = 1 AND available_at IS NOT NULL AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM {{table}} WITH (INDEX({{name}}_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @published = 1 AND finished_at IS NOT NULL AND status = N'published' AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard, key_hash
          FROM {{table}} WITH (INDEX({{name}}_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE @abandoned = 1 AND finished_at IS NOT NULL AND status = N'abandoned' AND (@broker = N'' OR target_broker = @broker)
         UNION ALL
        SELECT t.id, t.message_id, t.target_broker, t.status, t.type, t.ordering_key, t.aggregate_type, t.aggregate_id, t.correlation_id, t.tenant_id, t.last_error, t.created_at, t.locked_until, t.available_at, t.deferred, t.shard, t.key_hash
          FROM @ids AS i
         INNER JOIN {{table}} AS t WITH (INDEX({{name}}_once), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
            ON t.message_id = i.message_id
         WHERE @by_id = 1 AND (@broker = N'' OR t.target_broker = @broker)) AS m
 WHERE m.status IN (SELECT status FROM @wanted)
{{include part_find_where}}
 ORDER BY m.id
OPTION (RECOMPILE);
