-- The record of the steps that were applied.
CREATE TABLE IF NOT EXISTS {{table}}_migrations (
    version    integer     NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL
)
