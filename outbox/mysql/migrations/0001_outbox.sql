-- The outbox: one row per message and target broker. MySQL 8.0.22 or later, MariaDB 10.6 or later.
--
-- Statements of this kind commit by themselves, so each of them can be repeated: a migration that was broken off goes on.
--
-- Times are UTC. Texts have a binary collation, which still takes trailing spaces for nothing: keys are therefore compared by their hash.
-- Bounds are in bytes; a text that exceeds one is refused, never cut.
CREATE TABLE IF NOT EXISTS {{table}} (
    id                BIGINT         NOT NULL AUTO_INCREMENT,
    created_at        DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    available_at      DATETIME(6)    NULL, -- not before; NULL = at once, or admitted
    expires_at        DATETIME(6)    NULL, -- end of the TTL; NULL = never
    locked_until      DATETIME(6)    NULL, -- end of the lease, or of the backoff
    published_at      DATETIME(6)    NULL, -- set exactly in published
    finished_at       DATETIME(6)    NULL, -- set exactly in published and abandoned
    lock_token        VARBINARY(16)  NULL, -- the fence: a fresh one for each claim
    attempts          INT            NOT NULL DEFAULT 0, -- attempts spent
    crashes           INT            NOT NULL DEFAULT 0, -- leases that ran out
    priority          INT            NOT NULL DEFAULT 0,
    -- Shards 0 to 3: a quarter of the keys each; rows without a key are spread by their message id. Rows of low priority have
    -- the shards 4 to 7, urgent rows without a key the shards 8 to 11.
    shard             TINYINT        GENERATED ALWAYS AS
                      ((ASCII(UNHEX(LEFT(SHA2(COALESCE(ordering_key, message_id), 256), 2))) & 3)
                       + CASE WHEN priority < 0 THEN 4 WHEN priority > 0 AND ordering_key IS NULL THEN 8 ELSE 0 END) STORED,
    deferred          BOOLEAN        NOT NULL DEFAULT FALSE, -- out of the claim's way: see {{table}}_key_blocks
    isolated          BOOLEAN        NOT NULL DEFAULT FALSE, -- claimed alone: a crash is its own
    message_id        VARBINARY(16)  NOT NULL, -- the bytes of a UUID: UNHEX(REPLACE(text, '-', ''))
    status            VARCHAR(16)    NOT NULL DEFAULT 'pending',
    locked_by         VARCHAR(256)   NULL,
    target_broker     VARCHAR(128)   NOT NULL,
    stream            VARCHAR(512)   NOT NULL,
    type              VARCHAR(512)   NOT NULL,
    ordering_key      VARCHAR(512)   NULL, -- NULL = unordered; never empty, at most 512 bytes
    content_type      VARCHAR(256)   NOT NULL DEFAULT 'application/json',
    aggregate_type    VARCHAR(512)   NULL,
    aggregate_id      VARCHAR(512)   NULL,
    correlation_id    VARCHAR(512)   NULL,
    causation_id      VARCHAR(512)   NULL,
    tenant_id         VARCHAR(512)   NULL,
    broker_message_id MEDIUMTEXT     NULL,
    headers           MEDIUMTEXT     NULL, -- JSON object of strings
    last_error        MEDIUMTEXT     NULL, -- JSON {class, message, at, attempt}
    payload           LONGBLOB       NOT NULL,
    -- As much room as a claim needs, which gives it up. A row that grew would find none in a page that was filled when it was
    -- written, and the server would split page after page: 6.2 kB of redo log for each row that is claimed, instead of 0.9.
    room              VARBINARY(96)  NULL DEFAULT '                                                                                                ',
    -- There are no partial indexes here. Instead of a predicate, an index begins with a column that says where a row belongs: its
    -- shard while claims can find it, 100 while it is deferred, 101 when it is published, 102 when it is abandoned. It does not change when
    -- a row is claimed.
    queue             TINYINT        GENERATED ALWAYS AS
                      (CASE WHEN finished_at IS NULL AND status IN ('pending', 'processing', 'failed') THEN CASE WHEN available_at IS NOT NULL THEN 99 WHEN deferred = 0 THEN shard ELSE 100 END
                            WHEN status = 'published' THEN 101 ELSE 102 END) STORED,
    -- The hash of the key of a row that is deferred. NULL in all others.
    held_key          VARBINARY(32)  GENERATED ALWAYS AS
                      (CASE WHEN finished_at IS NULL AND deferred = 1 AND available_at IS NULL THEN UNHEX(SHA2(ordering_key, 256)) END) STORED,
    -- 1 where a row has an error and is not finished. NULL in all others.
    -- Scheduled rows, which no claim sees: a relay admits those whose time has come. NULL for all others.
    scheduled_shard   TINYINT        GENERATED ALWAYS AS (CASE WHEN finished_at IS NULL AND available_at IS NOT NULL THEN shard END) STORED,
    failing           TINYINT        GENERATED ALWAYS AS (CASE WHEN finished_at IS NULL AND last_error IS NOT NULL THEN 1 END) STORED,
    -- Hashes for searches: of the ordering key without its context, and of the trace id among the headers.
    search_key         INT UNSIGNED  GENERATED ALWAYS AS (CRC32(TRIM(LEADING ':' FROM SUBSTRING(ordering_key, LOCATE('::', ordering_key) + 1)))) STORED,
    search_aggregate   INT UNSIGNED  GENERATED ALWAYS AS (CRC32(aggregate_id)) STORED,
    search_causation   INT UNSIGNED  GENERATED ALWAYS AS (CRC32(causation_id)) STORED,
    search_tenant      INT UNSIGNED  GENERATED ALWAYS AS (CRC32(tenant_id)) STORED,
    search_type        INT UNSIGNED  GENERATED ALWAYS AS (CRC32(type)) STORED,
    search_trace       INT UNSIGNED  GENERATED ALWAYS AS (CRC32(SUBSTRING(headers, LOCATE('"traceparent":"00-', headers) + 18, 32))) STORED,
    search_correlation INT UNSIGNED  GENERATED ALWAYS AS (CRC32(correlation_id)) STORED,
    PRIMARY KEY (id),
    UNIQUE KEY {{name}}_once (message_id, target_broker),
    -- Claims, purges, the history of a broker. InnoDB orders entries of equal columns by id, and knows it.
    KEY {{name}}_queue (target_broker, queue, finished_at, id),
    -- The rows of a key that stand behind its block, in each of its shards.
    KEY {{name}}_held (held_key, target_broker, shard, id),
    -- For those who look at what has failed.
    KEY {{name}}_scheduled (scheduled_shard, target_broker, available_at),
    KEY {{name}}_failing (failing, target_broker, id),
    -- "Where is order 42?" Correlation ids are looked up, the others are found by one pass through this index.
    KEY {{name}}_search (search_correlation, search_key, search_aggregate, search_causation, search_tenant, search_type, search_trace),
    CONSTRAINT {{name}}_message_id CHECK (LENGTH(message_id) = 16),
    -- LIKE, because = takes trailing spaces for nothing.
    CONSTRAINT {{name}}_status CHECK (status IN ('pending', 'processing', 'published', 'failed', 'abandoned') AND status NOT LIKE '% '),
    CONSTRAINT {{name}}_is_finished CHECK ((status IN ('published', 'abandoned')) = (finished_at IS NOT NULL)),
    CONSTRAINT {{name}}_is_published CHECK ((status = 'published') = (published_at IS NOT NULL)),
    CONSTRAINT {{name}}_lease CHECK (status <> 'processing' OR (lock_token IS NOT NULL AND locked_until IS NOT NULL)),
    -- What relays compute with.
    CONSTRAINT {{name}}_counters CHECK (attempts BETWEEN 0 AND 1048575 AND crashes BETWEEN 0 AND 1048575),
    -- An empty key would be a key here and none elsewhere. NULL passes.
    CONSTRAINT {{name}}_ordering_key CHECK (LENGTH(ordering_key) BETWEEN 1 AND 512),
    -- What is scheduled is in nobody's hands, and for five years at most.
    CONSTRAINT {{name}}_schedule CHECK (available_at IS NULL OR status IN ('pending', 'failed') AND available_at <= created_at + INTERVAL 43830 HOUR),
    CONSTRAINT {{name}}_is_deferred CHECK (deferred IN (0, 1)),
    CONSTRAINT {{name}}_target_broker CHECK (LENGTH(target_broker) BETWEEN 1 AND 128 AND target_broker NOT LIKE '% '),
    CONSTRAINT {{name}}_bounds CHECK (LENGTH(stream) <= 512 AND LENGTH(type) <= 512 AND LENGTH(content_type) <= 256
        AND COALESCE(LENGTH(aggregate_type), 0) <= 512 AND COALESCE(LENGTH(aggregate_id), 0) <= 512 AND COALESCE(LENGTH(correlation_id), 0) <= 512
        AND COALESCE(LENGTH(causation_id), 0) <= 512 AND COALESCE(LENGTH(tenant_id), 0) <= 512
        AND COALESCE(LENGTH(headers), 0) <= 65536 AND COALESCE(LENGTH(last_error), 0) <= 16384 AND COALESCE(LENGTH(broker_message_id), 0) <= 512
        AND COALESCE(LENGTH(locked_by), 0) <= 256)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What waits for long, and so is taken out of the claim's way. A row here is a block: the message that waits, and with a key
-- also what holds back every later row of that key in its shard, deferred or not, until it is finished.
CREATE TABLE IF NOT EXISTS {{table}}_key_blocks (
    target_broker    VARCHAR(128)  NOT NULL,
    shard            INT           NOT NULL, -- of the block
    ordering_key     VARCHAR(512)  NULL, -- NULL: the row waits alone
    block_id         BIGINT        NOT NULL,
    block_message_id VARBINARY(16) NOT NULL,
    wake_at          DATETIME(6)   NULL, -- NULL: the block is back in the claim's way; in the year 9999: an operator must act
    reason           VARCHAR(16)   NOT NULL, -- backoff, operator
    since            DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    key_hash         VARBINARY(32) GENERATED ALWAYS AS (UNHEX(SHA2(ordering_key, 256))) STORED,
    PRIMARY KEY (block_id, shard), -- a row that was given another priority can be one in two
    UNIQUE KEY {{name}}_blocks_key (key_hash, target_broker, shard), -- NULLs differ from each other
    KEY {{name}}_blocks_wake (target_broker, shard, wake_at, block_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How often the key blocks of a shard have changed, or rows of it came back: what was decided about a shard is done while that is still so.
-- Who holds the lock of a row here has the shard. It is the same for all classes that hold the same keys.
CREATE TABLE IF NOT EXISTS {{table}}_shards (
    target_broker VARCHAR(128) NOT NULL,
    shard         INT          NOT NULL, -- 0 to 3
    version       BIGINT       NOT NULL,
    PRIMARY KEY (target_broker, shard)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The locks of ordering keys, for writers that serialise them: rows that are locked and never written.
CREATE TABLE IF NOT EXISTS {{table}}_key_slots (
    slot INT NOT NULL, -- 0 to 1023
    PRIMARY KEY (slot)
) ENGINE = InnoDB;
INSERT IGNORE INTO {{table}}_key_slots (slot)
WITH RECURSIVE digits (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digits WHERE n < 31) -- 1,000 steps are the most by default
SELECT high.n * 32 + low.n FROM digits AS high CROSS JOIN digits AS low;

-- Brokers to which nothing is delivered until the row is removed.
CREATE TABLE IF NOT EXISTS {{table}}_pauses (
    target_broker VARCHAR(128) NOT NULL,
    since         DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    paused_by     MEDIUMTEXT   NOT NULL DEFAULT (''),
    reason        MEDIUMTEXT   NOT NULL DEFAULT (''),
    PRIMARY KEY (target_broker)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The processes that run a relay on this table, and what they work on.
CREATE TABLE IF NOT EXISTS {{table}}_instances (
    instance_id VARBINARY(16) NOT NULL, -- made anew at each start
    name        MEDIUMTEXT    NOT NULL,
    host        MEDIUMTEXT    NOT NULL,
    pid         INT           NOT NULL,
    version     MEDIUMTEXT    NOT NULL,
    started_at  DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    seen_at     DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    work        MEDIUMTEXT    NOT NULL DEFAULT ('{}'), -- JSON object of batches, a list of {worker, broker, shard, rows, since}, and of what is unavailable
    PRIMARY KEY (instance_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What operators have done. Nothing removes these rows.
CREATE TABLE IF NOT EXISTS {{table}}_audit (
    id         BIGINT      NOT NULL AUTO_INCREMENT,
    started_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    ended_at   DATETIME(6) NULL, -- NULL: in progress, or its process has died
    actor      MEDIUMTEXT  NOT NULL,
    via        MEDIUMTEXT  NOT NULL, -- cli, http, go
    action     MEDIUMTEXT  NOT NULL,
    broker     MEDIUMTEXT  NOT NULL DEFAULT (''), -- '' = all
    filter     MEDIUMTEXT  NOT NULL DEFAULT (''), -- JSON object, or ''
    reason     MEDIUMTEXT  NOT NULL DEFAULT (''),
    row_count  BIGINT      NOT NULL DEFAULT 0, -- rows that it changed
    failure    MEDIUMTEXT  NOT NULL DEFAULT (''), -- the error with which it ended
    PRIMARY KEY (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
