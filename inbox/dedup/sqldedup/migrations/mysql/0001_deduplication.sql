-- What package inbox/dedup remembers: messages that were handled (kind handled), and tokens of messages that are in progress (kind token).
-- MySQL 8.0.21 or later, MariaDB 10.6 or later. Times are UTC. The statement commits by itself, so it can be repeated.
CREATE TABLE IF NOT EXISTS {{table}} (
    created_at DATETIME(6)  NOT NULL,
    kind       VARCHAR(8)   NOT NULL,
    consumer   VARCHAR(256) NOT NULL,
    token      VARCHAR(128) NOT NULL, -- of kind handled: the key of the message, a UUID
    PRIMARY KEY (kind, consumer, token),
    -- For the purge.
    KEY {{name}}_age (kind, created_at),
    CONSTRAINT {{name}}_kind CHECK (kind IN ('handled', 'token'))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
