-- === 0001_deduplication
-- What package inbox/dedup remembers: messages that were handled (kind handled), and tokens of messages that are in progress (kind token).
-- SQL Server 2016 or later, database compatibility level 130 or higher. Times are UTC. The collation is binary: names that differ by case
-- are different. A key has at most 2 * (8 + 256 + 128) = 784 bytes, of 900.
CREATE TABLE app.inbox_deduplication (
    created_at datetime2(6)  NOT NULL,
    kind       nvarchar(8)   COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT inbox_deduplication_kind CHECK (kind IN (N'handled', N'token')),
    consumer   nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    token      nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL, -- of kind handled: the key of the message, a UUID
    CONSTRAINT inbox_deduplication_pkey PRIMARY KEY CLUSTERED (kind, consumer, token)
)

-- === 0001_deduplication
-- For the purge.
CREATE INDEX inbox_deduplication_age ON app.inbox_deduplication (kind, created_at)

-- === contains
-- Whether there is an entry. Parameters: kind, consumer, token. The comment stands first so that no plugin takes this for a query that a replica
-- may answer: an answer that is late would be wrong.
-- Plan: one lookup in the primary key.
SELECT count(*)
  FROM app.inbox_deduplication
 WHERE kind = @p1 AND consumer = @p2 AND token = @p3

-- === add
-- Remember one entry, or leave it as it is. Parameters: kind, consumer, token, at. The range lock keeps another one from inserting the same
-- between the look and the insert.
INSERT INTO app.inbox_deduplication (created_at, kind, consumer, token)
SELECT new.created_at, new.kind, new.consumer, new.token
  FROM (SELECT CAST(@p1 AS datetime2(6)) AS created_at, CAST(@p2 AS nvarchar(8)) AS kind,
               CAST(@p3 AS nvarchar(256)) COLLATE Latin1_General_100_BIN2 AS consumer,
               CAST(@p4 AS nvarchar(128)) COLLATE Latin1_General_100_BIN2 AS token) AS new
 WHERE NOT EXISTS (SELECT 1
                     FROM app.inbox_deduplication AS old WITH (UPDLOCK, HOLDLOCK)
                    WHERE old.kind = @p5 AND old.consumer = new.consumer AND old.token = new.token)

-- === create
-- Create tokens. Parameters: at, tokens: a JSON array of objects with consumer and value. The range locks keep another one from inserting
-- the same between the look and the insert.
INSERT INTO app.inbox_deduplication (created_at, kind, consumer, token)
SELECT DISTINCT CAST(@p1 AS datetime2(6)), N'token', new.consumer COLLATE Latin1_General_100_BIN2, new.value COLLATE Latin1_General_100_BIN2
  FROM OPENJSON(@p2) WITH (consumer nvarchar(256), value nvarchar(128)) AS new
 WHERE NOT EXISTS (SELECT 1
                     FROM app.inbox_deduplication AS old WITH (UPDLOCK, HOLDLOCK)
                    WHERE old.kind = N'token' AND old.consumer = new.consumer COLLATE Latin1_General_100_BIN2
                      AND old.token = new.value COLLATE Latin1_General_100_BIN2)

-- === remove
-- Remove tokens. Parameter: tokens: a JSON array of objects with consumer and value.
-- Plan: the primary key, for each of them.
DELETE old
  FROM app.inbox_deduplication AS old
  JOIN OPENJSON(@p1) WITH (consumer nvarchar(256), value nvarchar(128)) AS used
    ON old.consumer = used.consumer COLLATE Latin1_General_100_BIN2 AND old.token = used.value COLLATE Latin1_General_100_BIN2
 WHERE old.kind = N'token'

-- === purge
-- Remove one batch of old entries, the oldest first. Parameters: kind, before, batch. Entries that another one is removing are passed over.
-- Plan: one range scan of inbox_deduplication_age.
WITH old AS (
    SELECT TOP (@p1) created_at
      FROM app.inbox_deduplication WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE kind = @p2 AND created_at < CAST(@p3 AS datetime2(6))
     ORDER BY created_at
)
DELETE FROM old

-- === lock
-- One migration at a time, until the end of the transaction. Parameter: name. It fails after a minute.
DECLARE @fanout_answer int;
EXEC @fanout_answer = sp_getapplock @Resource = @p1, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @fanout_answer < 0
    RAISERROR(N'another migration holds the lock', 16, 1)

-- === steps
-- The record of the steps that were applied. Times are UTC.
IF OBJECT_ID(N'app.inbox_deduplication_migrations', N'U') IS NULL
    CREATE TABLE app.inbox_deduplication_migrations (
        version    int           NOT NULL PRIMARY KEY,
        name       nvarchar(256) NOT NULL,
        applied_at datetime2(6)  NOT NULL
    )

-- === applied
-- The steps that were applied. The comment stands first so that no plugin takes this for a query that a replica may answer.
SELECT version FROM app.inbox_deduplication_migrations

-- === record
-- Record a step. Parameters: version, name, at.
INSERT INTO app.inbox_deduplication_migrations (version, name, applied_at) VALUES (@p1, @p2, CAST(@p3 AS datetime2(6)))

