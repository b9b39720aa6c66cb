-- claim
INSERT INTO app.inbox_messages AS m (consumer, message_id, status, updated_at, type, source)
VALUES (?1, ?2, 'handled', CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER), ?3, ?4)
    ON CONFLICT (consumer, message_id, source) DO UPDATE
   SET status = 'handled'
     , updated_at = excluded.updated_at
     , type = excluded.type
     , last_error = NULL
     , attributes = NULL
     , payload = NULL
 WHERE m.status IN ('failed', 'redriven', 'expected') AND (m.type IS NULL OR m.type = excluded.type)

-- claim_token
DELETE FROM app.inbox_messages
 WHERE consumer = ?1 AND message_id = ?2 AND source = ?4
   AND (type IS NULL OR type = ?3)
   AND status IN ('expected', 'failed', 'redriven')

-- count
INSERT INTO app.inbox_messages AS m (consumer, message_id, status, attempts, updated_at, type, source, last_error, attributes, payload)
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

-- count_token
UPDATE app.inbox_messages
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

-- dead_letter
SELECT consumer, message_id, coalesce(type, ''), coalesce(source, ''), attempts, updated_at, coalesce(last_error, '')
     , coalesce(attributes, ''), payload
  FROM app.inbox_messages
 WHERE status = 'dead_letter'
   AND (?1 = '' OR consumer = ?1)
   AND (?2 = '' OR type = ?2)
   AND (consumer, message_id, source) > (?3, ?4, ?6)
 ORDER BY consumer, message_id, source
 LIMIT ?5

-- expect
INSERT INTO app.inbox_messages (consumer, message_id, source, status, updated_at)
SELECT ?1, value, ?3, 'expected', CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
  FROM json_each(?2)
 WHERE true
    ON CONFLICT DO NOTHING

-- finish
UPDATE app.inbox_messages
   SET status = 'handled', updated_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = ?1 AND message_id = ?2 AND source = ?3
   AND status = 'redriven'

-- finish_token
DELETE FROM app.inbox_messages
 WHERE consumer = ?1 AND message_id = ?2 AND source = ?3
   AND status = 'redriven'

-- lock


-- look
SELECT status, coalesce(type, ''), source
  FROM app.inbox_messages
 WHERE consumer = ?1 AND message_id = ?2
 ORDER BY source = ?3 DESC
 LIMIT 1

-- migrate
CREATE TABLE IF NOT EXISTS app.inbox_messages_migrations (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
)

-- progress
SELECT m.message_id, m.source, m.status, coalesce(m.type, ''), m.attempts, m.updated_at, coalesce(m.last_error, '')
  FROM (SELECT DISTINCT value AS message_id FROM json_each(?2)) AS asked
 CROSS JOIN app.inbox_messages AS m ON m.consumer = ?1 AND m.message_id = asked.message_id
 ORDER BY m.message_id, m.source
 LIMIT ?3

-- purge_dead_letter
DELETE FROM app.inbox_messages
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM app.inbox_messages INDEXED BY inbox_messages_age
                                           WHERE status = 'dead_letter'
                                             AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
                                           ORDER BY updated_at
                                           LIMIT ?2)
   AND status = 'dead_letter'
   AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1

-- purge_expected
DELETE FROM app.inbox_messages
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM app.inbox_messages INDEXED BY inbox_messages_age
                                           WHERE status = 'expected'
                                             AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
                                           ORDER BY updated_at
                                           LIMIT ?2)
   AND status = 'expected'
   AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1

-- purge_failed
DELETE FROM app.inbox_messages
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM app.inbox_messages INDEXED BY inbox_messages_age
                                           WHERE status = 'failed'
                                             AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
                                           ORDER BY updated_at
                                           LIMIT ?2)
   AND status = 'failed'
   AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1

-- purge_handled
DELETE FROM app.inbox_messages
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM app.inbox_messages INDEXED BY inbox_messages_age
                                           WHERE status = 'handled'
                                             AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
                                           ORDER BY updated_at
                                           LIMIT ?2)
   AND status = 'handled'
   AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1

-- purge_redriven
DELETE FROM app.inbox_messages
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM app.inbox_messages INDEXED BY inbox_messages_age
                                           WHERE status = 'redriven'
                                             AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
                                           ORDER BY updated_at
                                           LIMIT ?2)
   AND status = 'redriven'
   AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1

-- record
INSERT INTO app.inbox_messages_migrations (version, name) VALUES (?1, ?2)

-- redrive
UPDATE app.inbox_messages
   SET status = 'redriven', attempts = 0, updated_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
 WHERE consumer = ?1
   AND message_id IN (SELECT value FROM json_each(?2))
   AND (?3 = '' OR source = ?3)
   AND status = 'dead_letter'

-- redrive_all
UPDATE app.inbox_messages
   SET status = 'redriven', attempts = 0, updated_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM app.inbox_messages INDEXED BY inbox_messages_age
                                           WHERE status = 'dead_letter' AND consumer = ?1 AND (?2 = '' OR type = ?2)
                                           LIMIT ?3)
   AND status = 'dead_letter'

-- redriven
SELECT consumer, message_id, coalesce(type, ''), coalesce(source, ''), attempts, updated_at, coalesce(last_error, '')
     , coalesce(attributes, ''), payload
  FROM app.inbox_messages
 WHERE status = 'redriven'
   AND (?1 = '' OR consumer = ?1)
   AND (?2 = '' OR type = ?2)
   AND (consumer, message_id, source) > (?3, ?4, ?6)
 ORDER BY consumer, message_id, source
 LIMIT ?5

-- types
SELECT DISTINCT newest.type
  FROM (SELECT type, status FROM app.inbox_messages WHERE consumer = ?1 ORDER BY message_id DESC, source DESC LIMIT ?2) AS newest
 WHERE newest.status = 'handled' AND newest.type IS NOT NULL

-- versions
SELECT version FROM app.inbox_messages_migrations ORDER BY version

