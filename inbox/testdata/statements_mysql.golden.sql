-- claim
INSERT INTO app.inbox_messages (consumer, message_id, status, attempts, updated_at, type, source)
VALUES (?, UNHEX(REPLACE(?, '-', '')), 'handled', 0 * LAST_INSERT_ID(1), UTC_TIMESTAMP(6), ?, ?)
    ON DUPLICATE KEY UPDATE
       attempts = attempts + 0 * LAST_INSERT_ID(CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN 1 ELSE 2 END)
     , updated_at = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN UTC_TIMESTAMP(6) ELSE updated_at END
     , last_error = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN NULL ELSE last_error END
     , attributes = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN NULL ELSE attributes END
     , payload = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN NULL ELSE payload END
     , type = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN ? ELSE type END
     , status = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN 'handled' ELSE status END

-- claim_token
DELETE FROM app.inbox_messages
 WHERE consumer = ? AND message_id = UNHEX(REPLACE(?, '-', '')) AND source = ?
   AND status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY))

-- count
INSERT INTO app.inbox_messages (consumer, message_id, status, attempts, updated_at, type, source, last_error, attributes, payload)
VALUES (?, UNHEX(REPLACE(?, '-', '')), CASE WHEN ? >= ? THEN 'dead_letter' ELSE 'failed' END
     , ? + 0 * LAST_INSERT_ID(4 * ? + CASE WHEN ? >= ? THEN 2 ELSE 1 END), UTC_TIMESTAMP(6), ?, ?, ?
     , CASE WHEN ? >= ? THEN ? END
     , CASE WHEN ? >= ? THEN ? END)
    ON DUPLICATE KEY UPDATE
       attributes = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) AND attempts + ? >= ? THEN ? ELSE attributes END
     , payload = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) AND attempts + ? >= ? THEN ? ELSE payload END
     , last_error = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN ? ELSE last_error END
     , updated_at = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN UTC_TIMESTAMP(6) ELSE updated_at END
     , attempts = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY))
                       THEN attempts + ? + 0 * LAST_INSERT_ID(4 * (attempts + ?) + CASE WHEN attempts + ? >= ? THEN 2 ELSE 1 END)
                       ELSE attempts + 0 * LAST_INSERT_ID(3) END
     , type = CASE WHEN status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)) THEN ? ELSE type END
     , status = CASE WHEN NOT COALESCE(status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY)), FALSE) THEN status
                     WHEN attempts >= ? THEN 'dead_letter' WHEN status = 'redriven' THEN 'redriven' ELSE 'failed' END

-- count_token
UPDATE app.inbox_messages
   SET attributes = CASE WHEN attempts + ? >= ? THEN ? ELSE attributes END
     , payload = CASE WHEN attempts + ? >= ? THEN ? ELSE payload END
     , last_error = ?
     , updated_at = UTC_TIMESTAMP(6)
     , type = ?
     , status = CASE WHEN attempts + ? >= ? THEN 'dead_letter' WHEN status = 'redriven' THEN 'redriven' ELSE 'failed' END
     , attempts = attempts + ? + 0 * LAST_INSERT_ID(4 * (attempts + ?) + CASE WHEN attempts + ? >= ? THEN 2 ELSE 1 END)
 WHERE consumer = ? AND message_id = UNHEX(REPLACE(?, '-', '')) AND source = ?
   AND status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(? AS BINARY))

-- dead_letter
SELECT consumer, LOWER(HEX(message_id)), COALESCE(type, ''), source, attempts, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at)
     , COALESCE(last_error, ''), COALESCE(attributes, ''), payload
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'dead_letter'
   AND (? = '' OR consumer = ?)
   AND (? = '' OR type = ?)
   AND (consumer > ? OR consumer = ? AND (message_id > UNHEX(REPLACE(?, '-', '')) OR message_id = UNHEX(REPLACE(?, '-', '')) AND source > ?))
 ORDER BY consumer, message_id, source
 LIMIT ?

-- expect
INSERT INTO app.inbox_messages (consumer, message_id, source, status, updated_at)
SELECT ?, sent.message_id, ?, 'expected', UTC_TIMESTAMP(6)
  FROM (SELECT UNHEX(REPLACE(listed.item, '-', '')) AS message_id
          FROM JSON_TABLE(?, '$[*]' COLUMNS (item CHAR(36) PATH '$')) AS listed) AS sent
 ORDER BY sent.message_id
    ON DUPLICATE KEY UPDATE attempts = attempts

-- finish
UPDATE app.inbox_messages
   SET status = 'handled', updated_at = UTC_TIMESTAMP(6), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = ? AND message_id = UNHEX(REPLACE(?, '-', '')) AND source = ?
   AND status = 'redriven'

-- finish_token
DELETE FROM app.inbox_messages
 WHERE consumer = ? AND message_id = UNHEX(REPLACE(?, '-', '')) AND source = ?
   AND status = 'redriven'

-- lock
SELECT GET_LOCK(CONCAT('fanout:', LEFT(SHA2(CONCAT(DATABASE(), '.', LOWER(?)), 256), 48)), 60)

-- lock_dead
SELECT consumer, HEX(message_id), source
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'dead_letter' AND consumer = ? AND (? = '' OR type = ?)
 LIMIT ?
   FOR UPDATE SKIP LOCKED

-- lock_old_dead_letter
SELECT consumer, HEX(message_id), source
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'dead_letter'
   AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
 ORDER BY updated_at
 LIMIT ?
   FOR UPDATE SKIP LOCKED

-- lock_old_expected
SELECT consumer, HEX(message_id), source
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'expected'
   AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
 ORDER BY updated_at
 LIMIT ?
   FOR UPDATE SKIP LOCKED

-- lock_old_failed
SELECT consumer, HEX(message_id), source
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'failed'
   AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
 ORDER BY updated_at
 LIMIT ?
   FOR UPDATE SKIP LOCKED

-- lock_old_handled
SELECT consumer, HEX(message_id), source
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'handled'
   AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
 ORDER BY updated_at
 LIMIT ?
   FOR UPDATE SKIP LOCKED

-- lock_old_redriven
SELECT consumer, HEX(message_id), source
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'redriven'
   AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
 ORDER BY updated_at
 LIMIT ?
   FOR UPDATE SKIP LOCKED

-- look
SELECT status, COALESCE(type, ''), source
  FROM app.inbox_messages
 WHERE consumer = ? AND message_id = UNHEX(REPLACE(?, '-', ''))
 ORDER BY source = ? DESC
 LIMIT 1

-- migrate
CREATE TABLE IF NOT EXISTS app.inbox_messages_migrations (
    version    INT          NOT NULL,
    name       VARCHAR(255) NOT NULL,
    applied_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (version)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

-- packet
SELECT @@max_allowed_packet

-- progress
SELECT LOWER(HEX(m.message_id)), m.source, m.status, COALESCE(m.type, ''), m.attempts, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', m.updated_at)
     , COALESCE(m.last_error, '')
  FROM (SELECT DISTINCT UNHEX(REPLACE(listed.item, '-', '')) AS message_id
          FROM JSON_TABLE(?, '$[*]' COLUMNS (item CHAR(36) PATH '$')) AS listed) AS asked
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = ? AND m.message_id = asked.message_id
 ORDER BY m.message_id, m.source
 LIMIT ?

-- purge_dead_letter
DELETE m
  FROM JSON_TABLE(?, '$[*]' COLUMNS (consumer VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.consumer', id CHAR(32) PATH '$.id'
     , source VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.source')) AS chosen
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = chosen.consumer COLLATE utf8mb4_bin AND m.message_id = UNHEX(chosen.id)
   AND m.source = chosen.source COLLATE utf8mb4_bin

-- purge_expected
DELETE m
  FROM JSON_TABLE(?, '$[*]' COLUMNS (consumer VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.consumer', id CHAR(32) PATH '$.id'
     , source VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.source')) AS chosen
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = chosen.consumer COLLATE utf8mb4_bin AND m.message_id = UNHEX(chosen.id)
   AND m.source = chosen.source COLLATE utf8mb4_bin

-- purge_failed
DELETE m
  FROM JSON_TABLE(?, '$[*]' COLUMNS (consumer VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.consumer', id CHAR(32) PATH '$.id'
     , source VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.source')) AS chosen
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = chosen.consumer COLLATE utf8mb4_bin AND m.message_id = UNHEX(chosen.id)
   AND m.source = chosen.source COLLATE utf8mb4_bin

-- purge_handled
DELETE m
  FROM JSON_TABLE(?, '$[*]' COLUMNS (consumer VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.consumer', id CHAR(32) PATH '$.id'
     , source VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.source')) AS chosen
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = chosen.consumer COLLATE utf8mb4_bin AND m.message_id = UNHEX(chosen.id)
   AND m.source = chosen.source COLLATE utf8mb4_bin

-- purge_redriven
DELETE m
  FROM JSON_TABLE(?, '$[*]' COLUMNS (consumer VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.consumer', id CHAR(32) PATH '$.id'
     , source VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.source')) AS chosen
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = chosen.consumer COLLATE utf8mb4_bin AND m.message_id = UNHEX(chosen.id)
   AND m.source = chosen.source COLLATE utf8mb4_bin

-- record
INSERT INTO app.inbox_messages_migrations (version, name) VALUES (?, ?)

-- redrive
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (item CHAR(36) PATH '$')) AS listed
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = ? AND m.message_id = UNHEX(REPLACE(listed.item, '-', ''))
   SET m.status = 'redriven', m.attempts = 0, m.updated_at = UTC_TIMESTAMP(6)
 WHERE (? = '' OR m.source = ?)
   AND m.status = 'dead_letter'

-- redrive_all
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (consumer VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.consumer', id CHAR(32) PATH '$.id'
     , source VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.source')) AS chosen
 STRAIGHT_JOIN app.inbox_messages AS m ON m.consumer = chosen.consumer COLLATE utf8mb4_bin AND m.message_id = UNHEX(chosen.id)
   AND m.source = chosen.source COLLATE utf8mb4_bin
   SET m.status = 'redriven', m.attempts = 0, m.updated_at = UTC_TIMESTAMP(6)

-- redriven
SELECT consumer, LOWER(HEX(message_id)), COALESCE(type, ''), source, attempts, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at)
     , COALESCE(last_error, ''), COALESCE(attributes, ''), payload
  FROM app.inbox_messages FORCE INDEX (inbox_messages_age)
 WHERE status = 'redriven'
   AND (? = '' OR consumer = ?)
   AND (? = '' OR type = ?)
   AND (consumer > ? OR consumer = ? AND (message_id > UNHEX(REPLACE(?, '-', '')) OR message_id = UNHEX(REPLACE(?, '-', '')) AND source > ?))
 ORDER BY consumer, message_id, source
 LIMIT ?

-- release
SELECT RELEASE_LOCK(CONCAT('fanout:', LEFT(SHA2(CONCAT(DATABASE(), '.', LOWER(?)), 256), 48)))

-- types
SELECT DISTINCT newest.type
  FROM (SELECT type, status FROM app.inbox_messages FORCE INDEX (PRIMARY) WHERE consumer = ? ORDER BY message_id DESC, source DESC LIMIT ?) AS newest
 WHERE newest.status = 'handled' AND newest.type IS NOT NULL

-- versions
SELECT version FROM app.inbox_messages_migrations ORDER BY version

