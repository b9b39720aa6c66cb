-- The inbox: one row per consumer, source and message. SQL Server 2016 or later.
--
-- Times are UTC. Consumers that differ by case are different. The key has at most 816 bytes, of the
-- 900 that a clustered one may have.
CREATE TABLE app.inbox_messages (
    consumer   nvarchar(200)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_id uniqueidentifier NOT NULL,
    status     nvarchar(16)     COLLATE Latin1_General_100_BIN2 NOT NULL,
    attempts   int              NOT NULL CONSTRAINT inbox_messages_default_attempts DEFAULT 0, -- that have failed, since it was last redriven
    updated_at datetime2(6)     NOT NULL CONSTRAINT inbox_messages_default_updated_at DEFAULT SYSUTCDATETIME(), -- since when it has this status
    type       nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL, -- the wire type; NULL = not known yet
    source     nvarchar(200)    COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT inbox_messages_default_source DEFAULT N'', -- the stream or subscription that it came from: ids of another source are others
    last_error nvarchar(max)    NULL, -- JSON {class, message}
    attributes nvarchar(max)    NULL, -- JSON object of strings, of dead letters and redriven messages
    payload    varbinary(max)   NULL, -- of dead letters and redriven messages: enough to handle it
    CONSTRAINT inbox_messages_pkey PRIMARY KEY CLUSTERED (consumer, message_id, source),
    CONSTRAINT inbox_messages_status CHECK (status IN (N'handled', N'failed', N'dead_letter', N'redriven', N'expected')),
    CONSTRAINT inbox_messages_consumer CHECK (consumer <> N'')
);

-- By age within a status: new rows of a status go to the end of its part, the purge reads it from
-- the old end, and lists read the part of dead letters.
CREATE INDEX inbox_messages_age ON app.inbox_messages (status, updated_at);
