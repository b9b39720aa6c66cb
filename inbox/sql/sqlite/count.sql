-- Count a failed attempt, or make a message a dead letter. What is handled or a dead letter, or
-- recorded with another type, stays as it is: then there is no row in the answer. A message that
-- was redriven and has not used up its attempts stays redriven. ?1 consumer, ?2 message id, ?3
-- type, ?4 source, ?5 error, ?6 attributes, ?7 payload, ?8 what to add to the attempts, ?9 the
-- number of attempts at which it becomes a dead letter.
-- Plan: one lookup in the primary key.
INSERT INTO {{table}} AS m (consumer, message_id, status, attempts, updated_at, type, source, last_error, attributes, payload)
VALUES (?1, ?2, CASE WHEN ?8 >= ?9 THEN 'dead_letter' ELSE 'failed' END, ?8
     , CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER), ?3, ?4, ?5
     , CASE WHEN ?8 >= ?9 THEN ?6 END
     , CASE WHEN ?8 >= ?9 THEN ?7 END)
    ON CONFLICT (consumer, message_id, source) DO UPDATE
   SET status = CASE WHEN m.attempts + ?8 >= ?9 THEN 'dead_letter' WHEN m.status = 'redriven' THEN 'redriven' ELSE 'failed' END
     , attempts = m.attempts + ?8
     , updated_at = excluded.updated_at
     , type = excluded.type
     , last_error = excluded.last_error
     , attributes = CASE WHEN m.attempts + ?8 >= ?9 THEN ?6 ELSE m.attributes END
     , payload = CASE WHEN m.attempts + ?8 >= ?9 THEN ?7 ELSE m.payload END
 WHERE m.status IN ('failed', 'redriven', 'expected') AND (m.type IS NULL OR m.type = excluded.type)
RETURNING status, attempts
