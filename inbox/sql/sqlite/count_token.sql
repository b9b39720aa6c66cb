-- Count a failed attempt, or make a message a dead letter, where there is a token for it. Without
-- one the message is handled: then there is no row in the answer. The parameters are those of
-- count.sql.
-- Plan: one lookup in the primary key.
UPDATE {{table}}
   SET status = CASE WHEN attempts + ?8 >= ?9 THEN 'dead_letter' WHEN status = 'redriven' THEN 'redriven' ELSE 'failed' END
     , attempts = attempts + ?8
     , updated_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
     , type = ?3
     , last_error = ?5
     , attributes = CASE WHEN attempts + ?8 >= ?9 THEN ?6 ELSE attributes END
     , payload = CASE WHEN attempts + ?8 >= ?9 THEN ?7 ELSE payload END
 WHERE consumer = ?1 AND message_id = ?2 AND source = ?4
   AND (type IS NULL OR type = ?3)
   AND status IN ('expected', 'failed', 'redriven')
RETURNING status, attempts
