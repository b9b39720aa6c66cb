-- Blocks of which the row is abandoned have nothing to wait for: the next claim moves them on. @ids (a JSON list).
UPDATE {{table}}_key_blocks SET wake_at = NULL, reason = 'backoff' WHERE block_id IN (SELECT value FROM json_each(@ids))
