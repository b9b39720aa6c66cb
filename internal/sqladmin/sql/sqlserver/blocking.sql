-- The abandoned rows for which ordering keys wait until an operator acts, as far as a filter selects them, the first of them by id. It runs before
-- any shard is locked; the rows are tested again under the locks. Rows that another transaction is writing are passed over.
-- @limit, @broker or '', @statuses and @message_ids (JSON lists, none = any), and what part_find_where.sql uses
-- Plan: reads the blocks; their rows by {{name}}_pkey.
DECLARE @ids TABLE (message_id uniqueidentifier NOT NULL PRIMARY KEY);
DECLARE @wanted TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @by_id bit = 0;
INSERT INTO @wanted (status)
SELECT DISTINCT status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$');
IF @message_ids <> N'[]'
BEGIN
    SET @by_id = 1;
    INSERT INTO @ids (message_id)
    SELECT DISTINCT CONVERT(uniqueidentifier, message_id) FROM OPENJSON(@message_ids) WITH (message_id nvarchar(36) '$');
END;
SET @now = SYSUTCDATETIME();
SELECT TOP (@limit) m.id AS fanout_found, LOWER(CONVERT(char(36), m.message_id)) AS message_id, m.target_broker
  FROM {{table}}_key_blocks AS w WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = w.block_id
 WHERE m.status IN (SELECT status FROM @wanted)
   AND w.reason = N'operator' AND w.wake_at = '9999-12-31' AND w.ordering_key IS NOT NULL
   AND (@broker = N'' OR m.target_broker = @broker)
   AND (@by_id = 0 OR m.message_id IN (SELECT message_id FROM @ids))
{{include part_find_where}}
 ORDER BY m.id
OPTION (RECOMPILE);
