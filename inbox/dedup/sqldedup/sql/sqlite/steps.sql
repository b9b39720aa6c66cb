-- The record of the steps that were applied. Times are microseconds since 1970, UTC.
CREATE TABLE IF NOT EXISTS {{table}}_migrations (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
)
