-- The inbox: one row per consumer and message. SQL Server 2016 or later.
--
-- The indexes below are filtered: this script and everybody who writes to the table needs the session options that follow. go-mssqldb,
-- ODBC, JDBC and ADO.NET set them by themselves; sqlcmd wants its option -I. Without them an INSERT fails with error 1934.
SET ANSI_NULLS ON;
SET ANSI_PADDING ON;
SET ANSI_WARNINGS ON;
SET ARITHABORT ON;
SET CONCAT_NULL_YIELDS_NULL ON;
SET QUOTED_IDENTIFIER ON;
SET NUMERIC_ROUNDABORT OFF;

-- Times are UTC. Consumers that differ by case are different. The key has at most 416 bytes, of the 900 that a clustered one may have.
CREATE TABLE app.inbox_messages (
    consumer   nvarchar(200)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_id uniqueidentifier NOT NULL,
    status     nvarchar(16)     COLLATE Latin1_General_100_BIN2 NOT NULL,
    attempts   int              NOT NULL CONSTRAINT inbox_messages_default_attempts DEFAULT 0, -- that have failed, since it was last released
    updated_at datetime2(6)     NOT NULL CONSTRAINT inbox_messages_default_updated_at DEFAULT SYSUTCDATETIME(), -- since when it has this status
    type       nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL, -- the wire type; NULL = not known yet
    source     nvarchar(512)    COLLATE Latin1_General_100_BIN2 NULL, -- the stream or subscription that it came from
    last_error nvarchar(max)    NULL, -- JSON {class, message}
    attributes nvarchar(max)    NULL, -- JSON object of strings, of what is parked or released
    payload    varbinary(max)   NULL, -- of what is parked or released: enough to handle it
    CONSTRAINT inbox_messages_pkey PRIMARY KEY CLUSTERED (consumer, message_id),
    CONSTRAINT inbox_messages_status CHECK (status IN (N'handled', N'failed', N'parked', N'released', N'expected')),
    CONSTRAINT inbox_messages_consumer CHECK (consumer <> N'')
);

-- The purge reads this from its old end; new rows go to the other one.
CREATE INDEX inbox_messages_handled ON app.inbox_messages (updated_at) WHERE status = N'handled';

-- Everything else: few rows. Lists, releases and the purge of what nobody came back for read it.
CREATE INDEX inbox_messages_open ON app.inbox_messages (status, consumer, message_id, updated_at) WHERE status <> N'handled';
