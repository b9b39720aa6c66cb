-- === 0001_deduplication
-- What package inbox/dedup remembers: messages that were handled (kind handled), and tokens of messages that are in progress (kind token).
-- Times are microseconds since 1970, UTC.
CREATE TABLE app.inbox_deduplication (
    created_at INTEGER NOT NULL,
    kind       TEXT    NOT NULL CONSTRAINT inbox_deduplication_kind CHECK (kind IN ('handled', 'token')),
    consumer   TEXT    NOT NULL,
    token      TEXT    NOT NULL, -- of kind handled: the key of the message, a UUID
    PRIMARY KEY (kind, consumer, token)
) WITHOUT ROWID

-- === 0001_deduplication
-- For the purge.
CREATE INDEX inbox_deduplication_age ON app.inbox_deduplication (kind, created_at)

-- === contains
-- Whether there is an entry. Parameters: kind, consumer, token. The comment stands first so that no plugin takes this for a query that a replica
-- may answer: an answer that is late would be wrong.
-- Plan: one lookup in the primary key.
SELECT count(*)
  FROM app.inbox_deduplication
 WHERE kind = ? AND consumer = ? AND token = ?

-- === add
-- Remember one entry, or leave it as it is. Parameters: kind, consumer, token, at.
INSERT INTO app.inbox_deduplication (created_at, kind, consumer, token)
VALUES (?, ?, ?, ?)
    ON CONFLICT DO NOTHING

-- === create
-- Create tokens. Parameters: at, tokens: a JSON array of objects with consumer and value. Without the WHERE, ON would belong to a join.
INSERT INTO app.inbox_deduplication (created_at, kind, consumer, token)
SELECT DISTINCT ?, 'token', new.value ->> 'consumer', new.value ->> 'value'
  FROM json_each(?) AS new
 WHERE true
    ON CONFLICT DO NOTHING

-- === remove
-- Remove tokens. Parameter: tokens: a JSON array of objects with consumer and value.
-- Plan: the primary key, for each of them.
DELETE FROM app.inbox_deduplication
 WHERE kind = 'token'
   AND (consumer, token) IN (SELECT used.value ->> 'consumer', used.value ->> 'value' FROM json_each(?) AS used)

-- === purge
-- Remove one batch of old entries, the oldest first. Parameters: kind, before, batch.
-- Plan: one range scan of inbox_deduplication_age.
DELETE FROM app.inbox_deduplication
 WHERE (kind, consumer, token) IN (SELECT kind, consumer, token
                                     FROM app.inbox_deduplication
                                    WHERE kind = ? AND created_at < ?
                                    ORDER BY created_at
                                    LIMIT ?)

-- === lock
-- One migration at a time, until the end of the transaction: SQLite has one writer. Parameter: name.
SELECT ?

-- === steps
-- The record of the steps that were applied. Times are microseconds since 1970, UTC.
CREATE TABLE IF NOT EXISTS app.inbox_deduplication_migrations (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
)

-- === applied
-- The steps that were applied. The comment stands first so that no plugin takes this for a query that a replica may answer.
SELECT version FROM app.inbox_deduplication_migrations

-- === record
-- Record a step. Parameters: version, name, at.
INSERT INTO app.inbox_deduplication_migrations (version, name, applied_at) VALUES (?, ?, ?)

