-- Mark a batch. Parameters: now, now, first id, last id, token. Plan: a range of the primary key.
UPDATE {{table}}
   SET status = 'published', published_at = ?, finished_at = ?, attempts = attempts + 1, locked_by = NULL, lock_token = NULL, locked_until = NULL
 WHERE id BETWEEN ? AND ? AND lock_token = ?
