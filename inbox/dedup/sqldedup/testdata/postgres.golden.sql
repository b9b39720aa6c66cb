-- === 0001_deduplication
-- What package inbox/dedup remembers: messages that were handled (kind handled), and tokens of messages that are in progress (kind token).
CREATE TABLE app.inbox_deduplication (
    created_at timestamptz NOT NULL,
    kind       text        NOT NULL CONSTRAINT inbox_deduplication_kind CHECK (kind IN ('handled', 'token')),
    consumer   text        COLLATE "C" NOT NULL,
    token      text        COLLATE "C" NOT NULL, -- of kind handled: the key of the message, a UUID
    CONSTRAINT inbox_deduplication_pkey PRIMARY KEY (kind, consumer, token)
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
 WHERE kind = $1 AND consumer = $2 AND token = $3

-- === add
-- Remember one entry, or leave it as it is. Parameters: kind, consumer, token, at.
INSERT INTO app.inbox_deduplication (created_at, kind, consumer, token)
VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING

-- === create
-- Create tokens. Parameters: at, tokens: a JSON array of objects with consumer and value.
INSERT INTO app.inbox_deduplication (created_at, kind, consumer, token)
SELECT DISTINCT CAST($1 AS timestamptz), 'token', new.consumer, new.value
  FROM jsonb_to_recordset(CAST($2 AS jsonb)) AS new (consumer text, value text)
    ON CONFLICT DO NOTHING

-- === remove
-- Remove tokens. Parameter: tokens: a JSON array of objects with consumer and value.
-- Plan: the primary key, for each of them.
DELETE FROM app.inbox_deduplication AS old
 USING jsonb_to_recordset(CAST($1 AS jsonb)) AS used (consumer text, value text)
 WHERE old.kind = 'token' AND old.consumer = used.consumer AND old.token = used.value

-- === purge
-- Remove one batch of old entries, the oldest first. Parameters: kind, before, batch. Entries that another one is removing are passed over.
-- Plan: one range scan of inbox_deduplication_age.
DELETE FROM app.inbox_deduplication
 WHERE (kind, consumer, token) IN (SELECT kind, consumer, token
                                     FROM app.inbox_deduplication
                                    WHERE kind = $1 AND created_at < $2
                                    ORDER BY created_at
                                    LIMIT $3
                                      FOR UPDATE SKIP LOCKED)

-- === lock
-- One migration at a time, until the end of the transaction. Parameter: name.
SELECT pg_advisory_xact_lock(hashtextextended($1, 0))

-- === steps
-- The record of the steps that were applied.
CREATE TABLE IF NOT EXISTS app.inbox_deduplication_migrations (
    version    integer     NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL
)

-- === applied
-- The steps that were applied. The comment stands first so that no plugin takes this for a query that a replica may answer.
SELECT version FROM app.inbox_deduplication_migrations

-- === record
-- Record a step. Parameters: version, name, at.
INSERT INTO app.inbox_deduplication_migrations (version, name, applied_at) VALUES ($1, $2, $3)

