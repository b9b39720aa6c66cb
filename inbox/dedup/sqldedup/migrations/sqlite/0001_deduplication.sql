-- What package inbox/dedup remembers: messages that were handled (kind handled), and tokens of messages that are in progress (kind token).
-- Times are microseconds since 1970, UTC.
CREATE TABLE {{table}} (
    created_at INTEGER NOT NULL,
    kind       TEXT    NOT NULL CONSTRAINT {{name}}_kind CHECK (kind IN ('handled', 'token')),
    consumer   TEXT    NOT NULL,
    token      TEXT    NOT NULL, -- of kind handled: the key of the message, a UUID
    PRIMARY KEY (kind, consumer, token)
) WITHOUT ROWID;

-- For the purge.
CREATE INDEX {{name}}_age ON {{table}} (kind, created_at);
