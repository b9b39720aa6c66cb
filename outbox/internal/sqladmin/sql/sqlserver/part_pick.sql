-- Lock the rows that an operator is about to change, if they still are what was looked for and no worker has claimed them. A part of a transaction, under
-- the shards' locks. @ids and @statuses JSON lists, @waiting: pending rows count only when they wait for a time
-- Plan: the list into a table variable, one seek of {{name}}_pkey per row.
DECLARE @listed TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @wanted TABLE (status nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @picked TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @listed (id)
SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$');
INSERT INTO @wanted (status)
SELECT DISTINCT status FROM OPENJSON(@statuses) WITH (status nvarchar(16) '$');
SET @now = SYSUTCDATETIME();
INSERT INTO @picked (id)
SELECT m.id
  FROM @listed AS l
 INNER JOIN {{table}} AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.id = l.id
 WHERE m.status IN (SELECT status FROM @wanted)
   AND (@waiting = 0 OR m.status <> N'pending' OR m.locked_until > @now OR m.available_at > @now)
   AND (m.status <> N'processing' OR m.locked_until <= @now);
-- Whoever waits alone does so no more.
DELETE w
  FROM @picked AS p
 INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = p.id
 WHERE w.ordering_key IS NULL;
