-- The outbox: one row per message and target broker. Times are microseconds since 1970 in UTC: SQLite has no type for
-- them, and text would keep each writer's offset.
CREATE TABLE {{table}} (
    id                INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    created_at        INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
    available_at      INTEGER,                       -- not before; NULL = at once, or admitted
    expires_at        INTEGER,                       -- end of the TTL; NULL = never
    locked_until      INTEGER,                       -- end of the lease, or of the backoff
    published_at      INTEGER,                       -- set exactly in published
    finished_at       INTEGER,                       -- set exactly in published and abandoned
    lock_token        TEXT,                          -- the fence: a fresh one for each claim
    attempts          INTEGER NOT NULL DEFAULT 0,    -- attempts spent
    crashes           INTEGER NOT NULL DEFAULT 0,    -- leases that ran out
    priority          INTEGER NOT NULL DEFAULT 0,
    -- There is one writer, so one shard for each class of priority: 0 normal, 1 backfill, 2 urgent rows without a key.
    shard              INTEGER NOT NULL GENERATED ALWAYS AS
                          (CASE WHEN priority < 0 THEN 1 WHEN priority > 0 AND ordering_key IS NULL THEN 2 ELSE 0 END) VIRTUAL,
    deferred            INTEGER NOT NULL DEFAULT 0,    -- taken out of the claim's way: see {{table}}_key_blocks
    isolated          INTEGER NOT NULL DEFAULT 0,    -- claimed alone: a crash is its own
    message_id        TEXT    NOT NULL COLLATE NOCASE, -- a UUID in its text form of 36 characters
    status            TEXT    NOT NULL DEFAULT 'pending',
    locked_by         TEXT,
    target_broker     TEXT    NOT NULL,
    stream            TEXT    NOT NULL,
    type              TEXT    NOT NULL,
    ordering_key      TEXT,                          -- NULL = unordered; never empty, at most 512 bytes
    content_type      TEXT    NOT NULL DEFAULT 'application/json',
    aggregate_type    TEXT,
    aggregate_id      TEXT,
    correlation_id    TEXT,
    causation_id      TEXT,
    tenant_id         TEXT,
    broker_message_id TEXT,
    headers           TEXT,                          -- JSON object of strings
    last_error        TEXT,                          -- JSON {class, message, at, attempt}
    payload           BLOB    NOT NULL,
    CONSTRAINT {{name}}_once UNIQUE (message_id, target_broker),
    CONSTRAINT {{name}}_message_id CHECK (message_id LIKE '________-____-____-____-____________' AND length(replace(message_id, '-', '')) = 32 AND message_id NOT GLOB '*[^-0-9A-Fa-f]*'),
    -- A column takes any value: a text among these numbers would make the claim of its neighbours fail, too.
    CONSTRAINT {{name}}_numbers CHECK (typeof(priority) = 'integer' AND typeof(attempts) = 'integer' AND typeof(crashes) = 'integer'
        AND typeof(created_at) = 'integer' AND typeof(coalesce(available_at, 0)) = 'integer'
        AND typeof(coalesce(expires_at, 0)) = 'integer' AND typeof(coalesce(locked_until, 0)) = 'integer'
        AND typeof(coalesce(published_at, 0)) = 'integer' AND typeof(coalesce(finished_at, 0)) = 'integer'),
    -- What relays compute with, and what JSON can say of a time: the years 1 to 9999, without its last day.
    CONSTRAINT {{name}}_counters CHECK (attempts BETWEEN 0 AND 1048575 AND crashes BETWEEN 0 AND 1048575),
    CONSTRAINT {{name}}_times CHECK (
        min(created_at, coalesce(available_at, 0), coalesce(expires_at, 0), coalesce(locked_until, 0), coalesce(published_at, 0), coalesce(finished_at, 0)) >= -62135596800000000
        AND max(created_at, coalesce(available_at, 0), coalesce(expires_at, 0), coalesce(locked_until, 0), coalesce(published_at, 0), coalesce(finished_at, 0)) < 253402214400000000),
    CONSTRAINT {{name}}_is_deferred CHECK (deferred IN (0, 1)),
    CONSTRAINT {{name}}_status CHECK (status IN ('pending', 'processing', 'published', 'failed', 'abandoned')),
    CONSTRAINT {{name}}_finished CHECK ((status IN ('published', 'abandoned')) = (finished_at IS NOT NULL)),
    CONSTRAINT {{name}}_published CHECK ((status = 'published') = (published_at IS NOT NULL)),
    CONSTRAINT {{name}}_lease CHECK (status <> 'processing' OR (lock_token IS NOT NULL AND locked_until IS NOT NULL)),
    -- In bytes, which a text is asked for as a blob. An empty key would be a key here and none elsewhere. NULL passes.
    -- What is scheduled is in nobody's hands, and for five years at most.
    CONSTRAINT {{name}}_schedule CHECK (available_at IS NULL OR status IN ('pending', 'failed') AND available_at <= created_at + 157788000000000),
    CONSTRAINT {{name}}_ordering_key CHECK (length(CAST(ordering_key AS BLOB)) BETWEEN 1 AND 512),
    CONSTRAINT {{name}}_bounds CHECK (length(CAST(target_broker AS BLOB)) BETWEEN 1 AND 128 AND length(CAST(stream AS BLOB)) <= 512
        AND length(CAST(type AS BLOB)) <= 512 AND length(CAST(content_type AS BLOB)) <= 256
        AND length(CAST(aggregate_type AS BLOB)) <= 512 AND length(CAST(aggregate_id AS BLOB)) <= 512
        AND length(CAST(correlation_id AS BLOB)) <= 512 AND length(CAST(causation_id AS BLOB)) <= 512
        AND length(CAST(tenant_id AS BLOB)) <= 512
        AND length(CAST(headers AS BLOB)) <= 65536 AND length(CAST(last_error AS BLOB)) <= 16384
        AND length(CAST(broker_message_id AS BLOB)) <= 512 AND length(CAST(locked_by AS BLOB)) <= 256)
);

-- Claims, retries, lease recovery and renewals.
CREATE INDEX {{name}}_open ON {{name}} (target_broker, shard, id) WHERE finished_at IS NULL AND deferred = 0 AND available_at IS NULL;

-- Scheduled rows, which no claim sees: a relay admits those whose time has come. And the same rows for those who page through them.
CREATE INDEX {{name}}_scheduled ON {{name}} (target_broker, shard, available_at) WHERE available_at IS NOT NULL;
CREATE INDEX {{name}}_scheduled_ids ON {{name}} (target_broker, id) WHERE available_at IS NOT NULL;

-- The rows of a key that stand behind its block in their shard. Few rows are in it. It holds the key, which is bounded: SQLite
-- has no function that hashes.
CREATE INDEX {{name}}_deferred_key ON {{name}} (target_broker, ordering_key, shard, id) WHERE deferred = 1 AND finished_at IS NULL;

-- Deferred rows of whatever key, for those who page through a broker's rows. A row gets an entry when it is deferred, and none otherwise.
CREATE INDEX {{name}}_deferred ON {{name}} (target_broker, id) WHERE deferred = 1 AND finished_at IS NULL;

-- Searches for messages: "where is order 42?". Correlation ids are looked up, the others (the ordering key without its context, ..., the trace id
-- among the headers) are found by one pass through this index. SQLite has no function that hashes.
CREATE INDEX {{name}}_search ON {{name}} (correlation_id, ltrim(substr(ordering_key, instr(ordering_key, '::') + 1), ':'), aggregate_id, causation_id, tenant_id, type,
    substr(headers, instr(headers, '"traceparent":"00-') + 18, 32));

-- What waits for long, and so is taken out of the claim's way. A row here is a block: the message that waits, and with a key
-- also what holds back every later row of that key in its shard, deferred or not, until it is finished.
CREATE TABLE {{table}}_key_blocks (
    block_id         INTEGER NOT NULL,
    block_message_id TEXT    NOT NULL COLLATE NOCASE,
    target_broker   TEXT    NOT NULL,
    shard            INTEGER NOT NULL,                -- of the block
    ordering_key    TEXT,                            -- NULL: the row waits alone
    wake_at         INTEGER,                         -- NULL: the block is back in the claim's way; 2^63-1: an operator must act
    reason          TEXT    NOT NULL,                -- backoff, operator
    since           INTEGER NOT NULL,
    PRIMARY KEY (block_id, shard)                    -- a row that was given another priority can be one in two
) WITHOUT ROWID;
CREATE UNIQUE INDEX {{name}}_blocks_key ON {{name}}_key_blocks (target_broker, ordering_key, shard); -- NULLs differ from each other
CREATE INDEX {{name}}_blocks_wake ON {{name}}_key_blocks (target_broker, shard, wake_at);

-- Purge and the history of a broker.
CREATE INDEX {{name}}_finished ON {{name}} (target_broker, status, finished_at) WHERE finished_at IS NOT NULL;

-- Rows that have an error and are not finished, for those who look at what has failed. It changes with failures only.
CREATE INDEX {{name}}_failing ON {{name}} (target_broker, id) WHERE last_error IS NOT NULL AND finished_at IS NULL;

-- Brokers to which nothing is delivered until the row is removed.
CREATE TABLE {{table}}_pauses (
    target_broker TEXT    NOT NULL PRIMARY KEY,
    since         INTEGER NOT NULL,
    paused_by     TEXT    NOT NULL DEFAULT '',
    reason        TEXT    NOT NULL DEFAULT ''
);

-- The processes that run a relay on this table, and what they work on.
CREATE TABLE {{table}}_instances (
    instance_id TEXT    NOT NULL PRIMARY KEY,        -- made anew at each start
    name        TEXT    NOT NULL,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    version     TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    work        TEXT    NOT NULL DEFAULT '{}'        -- JSON object of batches, a list of {worker, broker, shard, rows, since}, and of what is unavailable
);

-- What operators have done. Nothing removes these rows.
CREATE TABLE {{table}}_audit (
    id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,                              -- NULL: in progress, or its process has died
    actor      TEXT    NOT NULL,
    via        TEXT    NOT NULL,                     -- cli, http, go
    action     TEXT    NOT NULL,
    broker     TEXT    NOT NULL DEFAULT '',          -- '' = all
    filter     TEXT    NOT NULL DEFAULT '',          -- JSON object, or ''
    reason     TEXT    NOT NULL DEFAULT '',
    row_count  INTEGER NOT NULL DEFAULT 0,           -- rows that it changed
    failure    TEXT    NOT NULL DEFAULT ''           -- the error with which it ended
);

-- Who alone may do something, such as purging, and until when.
CREATE TABLE {{table}}_locks (
    name  TEXT    NOT NULL PRIMARY KEY,
    token TEXT    NOT NULL,
    until INTEGER NOT NULL
);
