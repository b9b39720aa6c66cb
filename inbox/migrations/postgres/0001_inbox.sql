-- The inbox: one row per consumer and message. A row of a message that was handled is written once, at the end of the table, of the
-- primary key (message ids are UUIDs of version 7) and of one more index, and removed once, by the purge; no page needs room for updates.
-- Only what has failed is updated.
--
-- There are no CHECK constraints: PostgreSQL reads their texts anew for each statement, and two of them took a fifth of the throughput.
-- Known values of status are handled, failed, parked, released and expected; a consumer has at most 200 characters.
CREATE TABLE {{table}} (
    message_id uuid        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- since when it has this status, by the database's clock
    attempts   integer     NOT NULL DEFAULT 0,                 -- that have failed, since it was last released
    status     text        NOT NULL,
    consumer   text        NOT NULL,
    type       text,                                           -- the wire type; NULL = not known yet
    source     text,                                           -- the stream or subscription that it came from
    last_error text,                                           -- JSON {class, message}
    attributes text,                                           -- JSON object of strings, of what is parked or released
    payload    bytea,                                          -- of what is parked or released: enough to handle it
    CONSTRAINT {{name}}_pkey PRIMARY KEY (consumer, message_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

-- The purge reads this from its old end; new rows go to the other one.
CREATE INDEX {{name}}_handled ON {{table}} (updated_at) WHERE status = 'handled';

-- Everything else: few rows. Lists, releases and the purge of what nobody came back for read it.
CREATE INDEX {{name}}_open ON {{table}} (status, consumer, message_id, updated_at) WHERE status <> 'handled';
