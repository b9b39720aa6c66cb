-- The leanest outbox that one could make by hand: no shards, no fence, no ordering, nothing but a primary key and the claim's index,
-- which a claim does not change. Columns that change come first, with a fixed width; the fill factor leaves room for HOT updates.
-- status: 0 pending, 1 processing, 2 published
CREATE TABLE {{table}}_minimal (
    id            bigint      NOT NULL PRIMARY KEY,
    available_at  timestamptz NOT NULL,
    locked_until  timestamptz,
    published_at  timestamptz,
    status        smallint    NOT NULL DEFAULT 0,
    message_id    uuid        NOT NULL,
    target_broker text        NOT NULL,
    stream        text        NOT NULL,
    type          text        NOT NULL,
    ordering_key  text,
    headers       text,
    payload       bytea       NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX ON {{table}}_minimal (target_broker, available_at, id) WHERE published_at IS NULL;
