-- Admit scheduled rows whose time has come. Named parameter: ids (JSON). From now on a row has waited since then: that is its lag.
UPDATE {{table}} SET available_at = NULL, locked_until = available_at, deferred = 0 WHERE id IN (SELECT value FROM json_each(:ids)) AND available_at IS NOT NULL
