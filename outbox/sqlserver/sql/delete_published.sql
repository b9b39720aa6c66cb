-- Remove what the broker has confirmed, if the rows are still ours: in place of mark_published.sql where a broker's rows are not kept.
-- A transaction of its own, so that it stands whatever becomes of the rest of the batch.
-- @completed_token, @published [{"i": id}]
-- Plan: as in mark_published.sql.
DECLARE @delivered TABLE (id bigint NOT NULL);
DECLARE @published_rows int;
INSERT INTO @delivered (id)
SELECT id
  FROM OPENJSON(@published) WITH (id bigint '$.i');
BEGIN TRY
    BEGIN TRANSACTION;
    DELETE m
      FROM @delivered AS d
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = d.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing';
    SET @published_rows = @@ROWCOUNT;
{{include part_commit}}
SELECT @published_rows AS fanout_published;
