-- What was decided about rows and the blocks of their keys holds only while they are what they were then. A part of a transaction, under the shards' locks.
-- @rows JSON list of {"id", "shard", "status", "waits", "behind"}, @known JSON list of {"id", "shard", "operator", "back"}: the entries that were
-- read. Whether a row waits counts where it is pending.
-- Plan: the lists into table variables, one seek of {{name}}_pkey per row, and those of part_entries.sql.
DECLARE @listed TABLE (
    id     bigint       NOT NULL PRIMARY KEY,
    shard  int          NOT NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    waits  bit          NOT NULL,
    behind bit          NOT NULL
);
DECLARE @seen TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @listed (id, shard, status, waits, behind)
SELECT id, shard, status, waits, behind
  FROM OPENJSON(@rows) WITH (id bigint '$.id', shard int '$.shard', status nvarchar(16) '$.status', waits bit '$.waits', behind bit '$.behind');
INSERT INTO @seen (block_id, shard, operator, back)
SELECT block_id, shard, operator, back
  FROM OPENJSON(@known) WITH (block_id bigint '$.id', shard int '$.shard', operator bit '$.operator', back bit '$.back');
SET @now = SYSUTCDATETIME();
IF (SELECT COUNT(*)
      FROM @listed AS l
     INNER JOIN {{table}} AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = l.id
     WHERE m.shard = l.shard AND m.status = l.status AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
       AND (m.status <> N'pending' OR l.waits = CASE WHEN m.locked_until > @now OR m.available_at > @now THEN 1 ELSE 0 END))
   <> (SELECT COUNT(*) FROM @listed)
    THROW 50123, N'a row of {{table}} that an operator acts on has changed', 1;
{{include part_entries}}
IF EXISTS (SELECT block_id, shard, operator, back FROM @entries EXCEPT SELECT block_id, shard, operator, back FROM @seen)
   OR EXISTS (SELECT block_id, shard, operator, back FROM @seen EXCEPT SELECT block_id, shard, operator, back FROM @entries)
    THROW 50123, N'a key block of {{table}} that an operator acts on has changed', 1;
