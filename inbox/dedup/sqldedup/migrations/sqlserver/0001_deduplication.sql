-- What package inbox/dedup remembers: messages that were handled (kind handled), and tokens of messages that are in progress (kind token).
-- SQL Server 2016 or later, database compatibility level 130 or higher. Times are UTC. The collation is binary: names that differ by case
-- are different. A key has at most 2 * (8 + 256 + 128) = 784 bytes, of 900.
CREATE TABLE {{table}} (
    created_at datetime2(6)  NOT NULL,
    kind       nvarchar(8)   COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT {{name}}_kind CHECK (kind IN (N'handled', N'token')),
    consumer   nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    token      nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL, -- of kind handled: the key of the message, a UUID
    CONSTRAINT {{name}}_pkey PRIMARY KEY CLUSTERED (kind, consumer, token)
);

-- For the purge.
CREATE INDEX {{name}}_age ON {{table}} (kind, created_at);
