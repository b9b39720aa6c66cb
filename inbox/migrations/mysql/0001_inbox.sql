-- The inbox: one row per consumer, source and message. MySQL 8.0.21 or later, MariaDB 10.6 or
-- later. Times are UTC, message ids the 16 bytes of a UUID. The statement commits by itself, so it
-- can be repeated: a migration that was broken off goes on.
CREATE TABLE IF NOT EXISTS {{table}} (
    consumer   VARCHAR(200)  NOT NULL,
    message_id VARBINARY(16) NOT NULL,
    status     VARCHAR(16)   NOT NULL,
    attempts   INT           NOT NULL DEFAULT 0,                  -- that have failed, since it was last redriven
    updated_at DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)), -- since when it has this status
    type       VARCHAR(512)  NULL,                                -- the wire type; NULL = not known yet
    source     VARCHAR(200)  NOT NULL DEFAULT '',                 -- the stream or subscription that it came from: ids of another source are others
    last_error MEDIUMTEXT    NULL,                                -- JSON {class, message}
    attributes MEDIUMTEXT    NULL,                                -- JSON object of strings, of dead letters and redriven messages
    payload    LONGBLOB      NULL,                                -- of dead letters and redriven messages: enough to handle it
    PRIMARY KEY (consumer, message_id, source),
    -- By age within a status: new rows of a status go to the end of its part, the purge reads it
    -- from the old end, and lists read the part of dead letters.
    KEY {{name}}_age (status, updated_at),
    CONSTRAINT {{name}}_message_id CHECK (LENGTH(message_id) = 16),
    CONSTRAINT {{name}}_status CHECK (status IN ('handled', 'failed', 'dead_letter', 'redriven', 'expected')),
    CONSTRAINT {{name}}_consumer CHECK (consumer <> '')
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
