-- Take rows out of the way of claims, or bring them back. Named parameters: ids (JSON), deferred (0 or 1).
UPDATE {{table}} SET deferred = :deferred WHERE id IN (SELECT value FROM json_each(:ids)) AND deferred <> :deferred
