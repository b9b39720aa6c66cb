-- The outbox: one row per message and target broker. SQL Server 2016 or later, database compatibility level 130 or higher.
--
-- shard is a computed column in an index, and the indexes below are filtered: this script and all who write to the
-- table needs the session options that follow. go-mssqldb, ODBC, JDBC and ADO.NET set them by themselves; sqlcmd wants
-- its option -I. Without them an INSERT fails with error 1934.
SET ANSI_NULLS ON;
SET ANSI_PADDING ON;
SET ANSI_WARNINGS ON;
SET ARITHABORT ON;
SET CONCAT_NULL_YIELDS_NULL ON;
SET QUOTED_IDENTIFIER ON;
SET NUMERIC_ROUNDABORT OFF;

-- Times are UTC. Texts that are compared have a binary collation: names and keys that differ by case are different.
-- Lengths are in UTF-16 code units; a row that exceeds one is refused, never cut.
CREATE TABLE {{table}} (
    id                bigint           NOT NULL IDENTITY(1, 1),
    created_at        datetime2(6)     NOT NULL CONSTRAINT {{name}}_default_created_at DEFAULT SYSUTCDATETIME(),
    available_at      datetime2(6)     NULL, -- not before; NULL = at once, or admitted
    expires_at        datetime2(6)     NULL, -- end of the TTL; NULL = never
    locked_until      datetime2(6)     NULL, -- end of the lease, or of the backoff
    published_at      datetime2(6)     NULL,
    finished_at       datetime2(6)     NULL, -- set exactly in published and abandoned
    lock_token        uniqueidentifier NULL, -- the fence: a fresh one for each claim
    attempts          int              NOT NULL CONSTRAINT {{name}}_default_attempts DEFAULT 0, -- attempts spent
    crashes           int              NOT NULL CONSTRAINT {{name}}_default_crashes DEFAULT 0,  -- leases that ran out
    priority          int              NOT NULL CONSTRAINT {{name}}_default_priority DEFAULT 0,
    -- Shards 0 to 3: a quarter of the keys each; rows without a key are spread by their message id. Rows of low priority have
    -- the shards 4 to 7, urgent rows without a key the shards 8 to 11. Both branches of COALESCE are nvarchar, so that a key's
    -- shard depends on its own bytes alone; every part is deterministic and precise, as an index demands.
    shard              AS ((CONVERT(int, SUBSTRING(HASHBYTES('SHA2_256', COALESCE(ordering_key, CONVERT(nvarchar(36), message_id))), 1, 1)) & 3)
                          + CASE WHEN priority < 0 THEN 4 WHEN priority > 0 AND ordering_key IS NULL THEN 8 ELSE 0 END)
                          PERSISTED NOT NULL,
    deferred            bit              NOT NULL CONSTRAINT {{name}}_default_deferred DEFAULT 0,   -- out of the claim's way: see {{table}}_key_blocks
    isolated          bit              NOT NULL CONSTRAINT {{name}}_default_isolated DEFAULT 0, -- claimed alone: a crash is its own
    message_id        uniqueidentifier NOT NULL,
    status            nvarchar(16)     COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT {{name}}_default_status DEFAULT N'pending',
    locked_by         nvarchar(256)    NULL,
    target_broker     nvarchar(128)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    stream            nvarchar(512)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    type              nvarchar(512)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    ordering_key      nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL, -- NULL = unordered; never empty, at most 512 bytes of UTF-8
    content_type      nvarchar(256)    NOT NULL CONSTRAINT {{name}}_default_content_type DEFAULT N'application/json',
    aggregate_type    nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL,
    aggregate_id      nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL,
    correlation_id    nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL,
    causation_id      nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL,
    tenant_id         nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL,
    broker_message_id nvarchar(max)    NULL,
    headers           nvarchar(max)    NULL, -- JSON object of strings
    last_error        nvarchar(max)    NULL, -- JSON {class, message, at, attempt}
    payload           varbinary(max)   NOT NULL,
    -- What a key is looked up by in an index: a key may have 1,024 bytes beside the broker's 256 and an index key no more than
    -- 1,700, and = ignores trailing spaces. It is stored in those indexes only.
    key_hash          AS CONVERT(binary(32), HASHBYTES('SHA2_256', ordering_key)),
    -- Checksums for searches: of the ordering key without its context, and of the trace id among the headers. They are stored in the
    -- index only.
    search_key         AS BINARY_CHECKSUM(CONVERT(nvarchar(512), CASE CHARINDEX(N'::', ordering_key) WHEN 0 THEN ordering_key
                              ELSE SUBSTRING(ordering_key, CHARINDEX(N'::', ordering_key) + 2, 512) END)),
    search_aggregate   AS BINARY_CHECKSUM(aggregate_id),
    search_causation   AS BINARY_CHECKSUM(causation_id),
    search_tenant      AS BINARY_CHECKSUM(tenant_id),
    search_type        AS BINARY_CHECKSUM(type),
    search_trace       AS BINARY_CHECKSUM(CONVERT(nvarchar(32), SUBSTRING(headers, CHARINDEX(N'"traceparent":"00-', headers) + 18, 32))),
    search_correlation AS BINARY_CHECKSUM(correlation_id),
    -- Clustered by id: rows are written at the end, and the rows of a claim, which were written together, lie together.
    -- Message ids would scatter them: SQL Server sorts a uniqueidentifier by its last bytes first, which are random also
    -- in version 7. The price is a hot last page, and an order that the planner could follow through all published rows;
    -- that is why the claim names its index.
    CONSTRAINT {{name}}_pkey PRIMARY KEY CLUSTERED (id),
    CONSTRAINT {{name}}_once UNIQUE NONCLUSTERED (message_id, target_broker), -- 272 of 1,700 bytes
    -- LIKE, because = ignores trailing spaces and would let N'pending ' through.
    CONSTRAINT {{name}}_status CHECK (status IN (N'pending', N'processing', N'published', N'failed', N'abandoned')
                                      AND status NOT LIKE N'% '),
    CONSTRAINT {{name}}_is_finished CHECK ((status IN (N'published', N'abandoned') AND finished_at IS NOT NULL)
                                           OR (status NOT IN (N'published', N'abandoned') AND finished_at IS NULL)),
    CONSTRAINT {{name}}_is_published CHECK ((status = N'published' AND published_at IS NOT NULL)
                                            OR (status <> N'published' AND published_at IS NULL)),
    CONSTRAINT {{name}}_lease CHECK (status <> N'processing' OR (lock_token IS NOT NULL AND locked_until IS NOT NULL)),
    -- What relays compute with.
    CONSTRAINT {{name}}_counters CHECK (attempts BETWEEN 0 AND 1048575 AND crashes BETWEEN 0 AND 1048575),
    -- An empty key would be a key here and none elsewhere; its length, because = takes spaces for nothing. NULL passes.
    -- What is scheduled is in nobody's hands, and for five years at most.
    CONSTRAINT {{name}}_schedule CHECK (available_at IS NULL OR (status IN (N'pending', N'failed') AND available_at <= DATEADD(HOUR, 43830, created_at))),
    CONSTRAINT {{name}}_ordering_key CHECK (DATALENGTH(ordering_key) > 0),
    -- In bytes, two for each code unit. The other texts are bounded by their types.
    CONSTRAINT {{name}}_bounds CHECK (target_broker <> N'' AND target_broker NOT LIKE N'% ' AND DATALENGTH(headers) <= 131072 AND DATALENGTH(last_error) <= 32768 AND DATALENGTH(broker_message_id) <= 1024)
);

-- A large claim or purge stays with its row locks: a lock on the whole table would stop every writer.
ALTER TABLE {{table}} SET (LOCK_ESCALATION = DISABLE);

-- Claims and probes read this index and no other; the included columns are all that the choice looks at. Its key
-- and its predicate do not change when a row is claimed, so an entry never moves: a scan in order meets each row once.
-- The ordering key is included, not a key column: see key_hash.
CREATE INDEX {{name}}_open ON {{table}} (target_broker, shard, id)
    INCLUDE (status, locked_until, ordering_key, crashes)
    WHERE finished_at IS NULL AND deferred = 0 AND available_at IS NULL;

-- Scheduled rows, which no claim sees: a relay admits those whose time has come. And the same rows for those who page through them.
CREATE INDEX {{name}}_scheduled ON {{table}} (target_broker, shard, available_at) WHERE available_at IS NOT NULL;
CREATE INDEX {{name}}_scheduled_ids ON {{table}} (target_broker, id) INCLUDE (status, available_at) WHERE available_at IS NOT NULL;

-- The rows of a key that stand behind its block, in each of its shards.
CREATE INDEX {{name}}_deferred_key ON {{table}} (target_broker, key_hash, shard, id)
    INCLUDE (message_id)
    WHERE deferred = 1 AND finished_at IS NULL;

-- Deferred rows of whatever key, for those who page through a broker's rows. A row gets an entry when it is deferred, and none otherwise.
CREATE INDEX {{name}}_deferred ON {{table}} (target_broker, id) WHERE deferred = 1 AND finished_at IS NULL;

-- Purge and the history of a broker.
CREATE INDEX {{name}}_finished ON {{table}} (target_broker, status, finished_at) WHERE finished_at IS NOT NULL;

-- Rows that have an error and are not finished, for those who look at what has failed. A claim changes neither column of the
-- filter, and a row that is published without a failure is never in it.
CREATE INDEX {{name}}_failing ON {{table}} (target_broker, id) WHERE last_error IS NOT NULL AND finished_at IS NULL;

-- Searches for messages: "where is order 42?". Correlation ids are looked up, the others are found by one pass through this index.
CREATE INDEX {{name}}_search ON {{table}} (search_correlation, search_key, search_aggregate, search_causation, search_tenant, search_type, search_trace);

-- What waits for long, and so is taken out of the claim's way. A row here is a block: the message that waits, and with a key
-- also what holds back every later row of that key in its shard, deferred or not, until it is finished.
CREATE TABLE {{table}}_key_blocks (
    target_broker   nvarchar(128)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard            int              NOT NULL, -- of the block
    ordering_key    nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL, -- NULL: the row waits alone
    block_id         bigint           NOT NULL,
    block_message_id uniqueidentifier NOT NULL,
    wake_at         datetime2(6)     NULL, -- NULL: the block is back in the claim's way; in the year 9999: an operator must act
    reason          nvarchar(16)     COLLATE Latin1_General_100_BIN2 NOT NULL, -- backoff, operator
    since           datetime2(6)     NOT NULL CONSTRAINT {{name}}_blocks_default_since DEFAULT SYSUTCDATETIME(),
    key_hash        AS CONVERT(binary(32), HASHBYTES('SHA2_256', ordering_key)),
    CONSTRAINT {{name}}_blocks_pkey PRIMARY KEY CLUSTERED (block_id, shard) -- a row that was given another priority can be one in two
);
ALTER TABLE {{table}}_key_blocks SET (LOCK_ESCALATION = DISABLE);
CREATE UNIQUE INDEX {{name}}_blocks_key ON {{table}}_key_blocks (target_broker, key_hash, shard) WHERE ordering_key IS NOT NULL;
CREATE INDEX {{name}}_blocks_wake ON {{table}}_key_blocks (target_broker, shard, wake_at);

-- How often the key blocks of a shard have changed, or rows of it came back: what was decided about a shard is done while that is still so.
-- Who holds the lock of a row here has the shard. It is the same for all classes that hold the same keys.
CREATE TABLE {{table}}_shards (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard         int           NOT NULL, -- 0 to 3
    version       bigint        NOT NULL,
    CONSTRAINT {{name}}_shards_pkey PRIMARY KEY CLUSTERED (target_broker, shard)
);
ALTER TABLE {{table}}_shards SET (LOCK_ESCALATION = DISABLE);

-- Brokers to which nothing is delivered until the row is removed.
CREATE TABLE {{table}}_pauses (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    since         datetime2(6)  NOT NULL CONSTRAINT {{name}}_pauses_default_since DEFAULT SYSUTCDATETIME(),
    paused_by     nvarchar(max) NOT NULL CONSTRAINT {{name}}_pauses_default_paused_by DEFAULT N'',
    reason        nvarchar(max) NOT NULL CONSTRAINT {{name}}_pauses_default_reason DEFAULT N'',
    CONSTRAINT {{name}}_pauses_pkey PRIMARY KEY CLUSTERED (target_broker)
);

-- The processes that run a relay on this table, and what they work on.
CREATE TABLE {{table}}_instances (
    instance_id uniqueidentifier NOT NULL, -- made anew at each start
    name        nvarchar(max)    NOT NULL,
    host        nvarchar(max)    NOT NULL,
    pid         int              NOT NULL,
    version     nvarchar(max)    NOT NULL,
    started_at  datetime2(6)     NOT NULL CONSTRAINT {{name}}_instances_default_started_at DEFAULT SYSUTCDATETIME(),
    seen_at     datetime2(6)     NOT NULL CONSTRAINT {{name}}_instances_default_seen_at DEFAULT SYSUTCDATETIME(),
    work        nvarchar(max)    NOT NULL CONSTRAINT {{name}}_instances_default_work DEFAULT N'{}', -- JSON object of batches, a list of {worker, broker, shard, rows, since}, and of what is unavailable
    CONSTRAINT {{name}}_instances_pkey PRIMARY KEY CLUSTERED (instance_id)
);

-- What operators have done. Nothing removes these rows.
CREATE TABLE {{table}}_audit (
    id         bigint        NOT NULL IDENTITY(1, 1),
    started_at datetime2(6)  NOT NULL CONSTRAINT {{name}}_audit_default_started_at DEFAULT SYSUTCDATETIME(),
    ended_at   datetime2(6)  NULL, -- NULL: in progress, or its process has died
    actor      nvarchar(max) NOT NULL,
    via        nvarchar(max) NOT NULL, -- cli, http, go
    action     nvarchar(max) NOT NULL,
    broker     nvarchar(max) NOT NULL CONSTRAINT {{name}}_audit_default_broker DEFAULT N'', -- '' = all
    filter     nvarchar(max) NOT NULL CONSTRAINT {{name}}_audit_default_filter DEFAULT N'', -- JSON object, or ''
    reason     nvarchar(max) NOT NULL CONSTRAINT {{name}}_audit_default_reason DEFAULT N'',
    row_count  bigint        NOT NULL CONSTRAINT {{name}}_audit_default_row_count DEFAULT 0, -- rows that it changed
    failure    nvarchar(max) NOT NULL CONSTRAINT {{name}}_audit_default_failure DEFAULT N'', -- the error with which it ended
    CONSTRAINT {{name}}_audit_pkey PRIMARY KEY CLUSTERED (id)
);
