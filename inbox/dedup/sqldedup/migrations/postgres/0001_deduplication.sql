-- What package inbox/dedup remembers: messages that were handled (kind handled), and tokens of messages that are in progress (kind token).
CREATE TABLE {{table}} (
    created_at timestamptz NOT NULL,
    kind       text        NOT NULL CONSTRAINT {{name}}_kind CHECK (kind IN ('handled', 'token')),
    consumer   text        COLLATE "C" NOT NULL,
    token      text        COLLATE "C" NOT NULL, -- of kind handled: the key of the message, a UUID
    CONSTRAINT {{name}}_pkey PRIMARY KEY (kind, consumer, token)
);

-- For the purge.
CREATE INDEX {{name}}_age ON {{table}} (kind, created_at);
