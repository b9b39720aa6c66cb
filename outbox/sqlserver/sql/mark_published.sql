-- Mark what the broker has confirmed, if the rows are still ours. It needs no shard lock: a row that leaves only makes way
-- for its key. A transaction of its own, so that it stands whatever becomes of the rest of the batch.
-- @completed_token, @published [{"i": id, "b": the broker's id}]
-- Plan: the list into a table variable, one seek of {{name}}_pkey per row. FORCESEEK, because on a small table the planner
-- would scan, and wait for the rows of every transaction that is writing.
DECLARE @delivered TABLE (id bigint NOT NULL, broker_message_id nvarchar(max) NULL);
DECLARE @published_rows int;
INSERT INTO @delivered (id, broker_message_id)
SELECT id, broker_message_id
  FROM OPENJSON(@published) WITH (id bigint '$.i', broker_message_id nvarchar(max) '$.b');
BEGIN TRY
    BEGIN TRANSACTION;
    SET @now = SYSUTCDATETIME();
    UPDATE m
       SET status            = N'published'
         , published_at      = @now
         , finished_at       = @now
         , attempts          = m.attempts + CASE WHEN m.attempts < 1048575 THEN 1 ELSE 0 END
         , locked_by         = NULL
         , lock_token        = NULL
         , locked_until      = NULL
         , broker_message_id = d.broker_message_id
      FROM @delivered AS d
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = d.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing';
    SET @published_rows = @@ROWCOUNT;
{{include part_commit}}
SELECT @published_rows AS fanout_published;
