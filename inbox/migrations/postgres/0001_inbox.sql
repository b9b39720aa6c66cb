-- The inbox: one row per consumer, source and message. A row of a message that was handled is
-- written once, at the end of the table, of the primary key (message ids are UUIDs of version 7)
-- and of one more index, and removed once, by the purge; no page needs room for updates. Only what
-- has failed is updated.
--
-- There are no CHECK constraints: PostgreSQL reads their texts anew for each statement, and two of
-- them took a fifth of the throughput. Known values of status are handled, failed, dead_letter,
-- redriven and expected; a consumer and a source have at most 200 characters.
CREATE TABLE {{table}} (
    message_id uuid        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- since when it has this status, by the database's clock
    attempts   integer     NOT NULL DEFAULT 0,                 -- that have failed, since it was last redriven
    status     text        NOT NULL,
    consumer   text        NOT NULL,
    type       text,                                           -- the wire type; NULL = not known yet
    source     text        NOT NULL DEFAULT '',                -- the stream or subscription that it came from: ids of another source are others
    last_error text,                                           -- JSON {class, message}
    attributes text,                                           -- JSON object of strings, of dead letters and redriven messages
    payload    bytea,                                          -- of dead letters and redriven messages: enough to handle it
    CONSTRAINT {{name}}_pkey PRIMARY KEY (consumer, message_id, source)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

-- By age within a status: new rows of a status go to the end of its part, the purge reads it from
-- the old end, and lists read the part of dead letters. One plain index, since a partial one would
-- not be cheaper: PostgreSQL prepares its condition for each statement.
CREATE INDEX {{name}}_age ON {{table}} (status, updated_at);
