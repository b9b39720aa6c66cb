-- The inbox: one row per consumer, source and message. Times are microseconds since 1970 in UTC.
CREATE TABLE {{table}} (
    consumer   TEXT    NOT NULL,
    message_id TEXT    NOT NULL COLLATE NOCASE,      -- a UUID in its text form of 36 characters
    status     TEXT    NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,           -- that have failed, since it was last redriven
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)), -- since when it has this status
    type       TEXT,                                 -- the wire type; NULL = not known yet
    source     TEXT    NOT NULL DEFAULT '',          -- the stream or subscription that it came from: ids of another source are others
    last_error TEXT,                                 -- JSON {class, message}
    attributes TEXT,                                 -- JSON object of strings, of dead letters and redriven messages
    payload    BLOB,                                 -- of dead letters and redriven messages: enough to handle it
    CONSTRAINT {{name}}_pkey PRIMARY KEY (consumer, message_id, source),
    CONSTRAINT {{name}}_message_id CHECK (message_id LIKE '________-____-____-____-____________' AND length(replace(message_id, '-', '')) = 32 AND message_id NOT GLOB '*[^-0-9A-Fa-f]*'),
    CONSTRAINT {{name}}_status CHECK (status IN ('handled', 'failed', 'dead_letter', 'redriven', 'expected')),
    CONSTRAINT {{name}}_consumer CHECK (consumer <> '' AND length(consumer) <= 200),
    CONSTRAINT {{name}}_source CHECK (length(source) <= 200),
    CONSTRAINT {{name}}_numbers CHECK (typeof(attempts) = 'integer' AND typeof(updated_at) = 'integer')
) WITHOUT ROWID;

-- By age within a status: new rows of a status go to the end of its part, the purge reads it from
-- the old end, and lists read the part of dead letters.
CREATE INDEX {{name}}_age ON {{table}} (status, updated_at);
