-- The inbox: one row per consumer, source and message. Times are microseconds since 1970 in UTC.
CREATE TABLE app.inbox_messages (
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
    CONSTRAINT inbox_messages_pkey PRIMARY KEY (consumer, message_id, source),
    CONSTRAINT inbox_messages_message_id CHECK (message_id LIKE '________-____-____-____-____________' AND length(replace(message_id, '-', '')) = 32 AND message_id NOT GLOB '*[^-0-9A-Fa-f]*'),
    CONSTRAINT inbox_messages_status CHECK (status IN ('handled', 'failed', 'dead_letter', 'redriven', 'expected')),
    CONSTRAINT inbox_messages_consumer CHECK (consumer <> '' AND length(consumer) <= 200),
    CONSTRAINT inbox_messages_source CHECK (length(source) <= 200),
    CONSTRAINT inbox_messages_numbers CHECK (typeof(attempts) = 'integer' AND typeof(updated_at) = 'integer')
) WITHOUT ROWID;

-- By age within a status: new rows of a status go to the end of its part, the purge reads it from
-- the old end, and lists read the part of dead letters.
CREATE INDEX inbox_messages_age ON app.inbox_messages (status, updated_at);
