-- Win a message, or lose it: one row is ours to handle, none is handled or a dead letter, or
-- recorded with another type. ?1 consumer, ?2 message id, ?3 type, ?4 source. Being a write, it
-- waits for every other transaction that writes, so that what it sees stays as it is until the
-- commit.
-- Plan: one lookup in the primary key.
INSERT INTO {{table}} AS m (consumer, message_id, status, updated_at, type, source)
VALUES (?1, ?2, 'handled', CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER), ?3, ?4)
    ON CONFLICT (consumer, message_id, source) DO UPDATE
   SET status = 'handled'
     , updated_at = excluded.updated_at
     , type = excluded.type
     , last_error = NULL
     , attributes = NULL
     , payload = NULL
 WHERE m.status IN ('failed', 'redriven', 'expected') AND (m.type IS NULL OR m.type = excluded.type)
