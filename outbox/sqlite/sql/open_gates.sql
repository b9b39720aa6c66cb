-- Gates of which the row is abandoned have nothing to wait for: the next claim moves them on. Named parameter: ids (JSON).
UPDATE {{table}}_waiting SET wake_at = NULL, reason = 'retry' WHERE gate_id IN (SELECT value FROM json_each(:ids))
