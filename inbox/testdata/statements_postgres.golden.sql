-- claim
INSERT INTO app.inbox_messages AS m (consumer, message_id, status, updated_at, type, source)
VALUES ($1, $2, 'handled', statement_timestamp(), $3, $4)
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
 WHERE consumer = $1 AND message_id = $2 AND source = $4
   AND (type IS NULL OR type = $3::text)
   AND status NOT IN ('handled', 'dead_letter')

-- count
INSERT INTO app.inbox_messages AS m (consumer, message_id, status, attempts, updated_at, type, source, last_error, attributes, payload)
VALUES ($1, $2, CASE WHEN $8::integer >= $9::integer THEN 'dead_letter' ELSE 'failed' END, $8, statement_timestamp(), $3, $4, $5
     , CASE WHEN $8 >= $9 THEN $6::text END
     , CASE WHEN $8 >= $9 THEN $7::bytea END)
    ON CONFLICT (consumer, message_id, source) DO UPDATE
   SET status = CASE WHEN m.attempts + $8 >= $9 THEN 'dead_letter' WHEN m.status = 'redriven' THEN 'redriven' ELSE 'failed' END
     , attempts = m.attempts + $8
     , updated_at = excluded.updated_at
     , type = excluded.type
     , last_error = excluded.last_error
     , attributes = CASE WHEN m.attempts + $8 >= $9 THEN $6 ELSE m.attributes END
     , payload = CASE WHEN m.attempts + $8 >= $9 THEN $7 ELSE m.payload END
 WHERE m.status IN ('failed', 'redriven', 'expected') AND (m.type IS NULL OR m.type = excluded.type)
RETURNING status, attempts

-- count_token
UPDATE app.inbox_messages AS m
   SET status = CASE WHEN m.attempts + $8::integer >= $9::integer THEN 'dead_letter' WHEN m.status = 'redriven' THEN 'redriven' ELSE 'failed' END
     , attempts = m.attempts + $8
     , updated_at = statement_timestamp()
     , type = $3
     , last_error = $5
     , attributes = CASE WHEN m.attempts + $8 >= $9 THEN $6 ELSE m.attributes END
     , payload = CASE WHEN m.attempts + $8 >= $9 THEN $7 ELSE m.payload END
 WHERE m.consumer = $1 AND m.message_id = $2 AND m.source = $4
   AND (m.type IS NULL OR m.type = $3)
   AND m.status NOT IN ('handled', 'dead_letter')
RETURNING status, attempts

-- dead_letter
SELECT consumer, message_id::text, coalesce(type, ''), coalesce(source, ''), attempts, updated_at, coalesce(last_error, '')
     , coalesce(attributes, ''), payload
  FROM app.inbox_messages
 WHERE status = 'dead_letter'
   AND ($1::text = '' OR consumer = $1)
   AND ($2::text = '' OR type = $2)
   AND (consumer, message_id, source) > ($3::text, $4::uuid, $6::text)
 ORDER BY consumer, message_id, source
 LIMIT $5

-- expect
INSERT INTO app.inbox_messages (consumer, message_id, source, status, updated_at)
SELECT $1::text, value::uuid, $3::text, 'expected', statement_timestamp()
  FROM json_array_elements_text($2::json)
    ON CONFLICT DO NOTHING

-- finish
UPDATE app.inbox_messages
   SET status = 'handled', updated_at = statement_timestamp(), last_error = NULL, attributes = NULL, payload = NULL
 WHERE consumer = $1 AND message_id = $2 AND source = $3
   AND status IS NOT DISTINCT FROM 'redriven'

-- finish_token
DELETE FROM app.inbox_messages
 WHERE consumer = $1 AND message_id = $2 AND source = $3
   AND status IS NOT DISTINCT FROM 'redriven'

-- lock
SELECT pg_advisory_xact_lock(hashtextextended($1, 0))

-- look
SELECT status, coalesce(type, ''), source
  FROM app.inbox_messages
 WHERE consumer = $1 AND message_id = $2
 ORDER BY source = $3 DESC
 LIMIT 1

-- migrate
CREATE TABLE IF NOT EXISTS app.inbox_messages_migrations (
    version    integer     NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)

-- probe
INSERT INTO app.inbox_messages (consumer, message_id, status, source)
VALUES ($1, $2, 'expected', $3)
    ON CONFLICT (consumer, message_id, source) DO UPDATE
   SET status = app.inbox_messages.status

-- progress
SELECT m.message_id::text, m.source, m.status, coalesce(m.type, ''), m.attempts, m.updated_at, coalesce(m.last_error, '')
  FROM (SELECT DISTINCT value::uuid AS message_id FROM json_array_elements_text($2::json)) AS asked
 CROSS JOIN LATERAL (SELECT * FROM app.inbox_messages WHERE consumer = $1 AND message_id = asked.message_id) AS m
 ORDER BY m.message_id, m.source
 LIMIT $3

-- purge_dead_letter
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM app.inbox_messages
     WHERE status = 'dead_letter'
       AND updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
     ORDER BY updated_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM app.inbox_messages AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status IS NOT DISTINCT FROM 'dead_letter'
   AND m.updated_at + $1::bigint * interval '1 microsecond' < statement_timestamp()

-- purge_expected
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM app.inbox_messages
     WHERE status = 'expected'
       AND updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
     ORDER BY updated_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM app.inbox_messages AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status IS NOT DISTINCT FROM 'expected'
   AND m.updated_at + $1::bigint * interval '1 microsecond' < statement_timestamp()

-- purge_failed
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM app.inbox_messages
     WHERE status = 'failed'
       AND updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
     ORDER BY updated_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM app.inbox_messages AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status IS NOT DISTINCT FROM 'failed'
   AND m.updated_at + $1::bigint * interval '1 microsecond' < statement_timestamp()

-- purge_handled
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM app.inbox_messages
     WHERE status = 'handled'
       AND updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
     ORDER BY updated_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM app.inbox_messages AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status IS NOT DISTINCT FROM 'handled'
   AND m.updated_at + $1::bigint * interval '1 microsecond' < statement_timestamp()

-- purge_redriven
WITH victims AS MATERIALIZED (
    SELECT ctid AS tid
      FROM app.inbox_messages
     WHERE status = 'redriven'
       AND updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
     ORDER BY updated_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM app.inbox_messages AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM victims))
   AND m.status IS NOT DISTINCT FROM 'redriven'
   AND m.updated_at + $1::bigint * interval '1 microsecond' < statement_timestamp()

-- record
INSERT INTO app.inbox_messages_migrations (version, name) VALUES ($1, $2)

-- redrive
UPDATE app.inbox_messages
   SET status = 'redriven', attempts = 0, updated_at = statement_timestamp()
 WHERE consumer = $1
   AND message_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($2::json)))
   AND ($3::text = '' OR source = $3)
   AND status IS NOT DISTINCT FROM 'dead_letter'

-- redrive_all
WITH chosen AS MATERIALIZED (
    SELECT ctid AS tid
      FROM app.inbox_messages
     WHERE status = 'dead_letter' AND consumer = $1 AND ($2::text = '' OR type = $2)
     LIMIT $3
       FOR UPDATE SKIP LOCKED
)
UPDATE app.inbox_messages AS m
   SET status = 'redriven', attempts = 0, updated_at = statement_timestamp()
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM chosen))
   AND m.status IS NOT DISTINCT FROM 'dead_letter'

-- redriven
SELECT consumer, message_id::text, coalesce(type, ''), coalesce(source, ''), attempts, updated_at, coalesce(last_error, '')
     , coalesce(attributes, ''), payload
  FROM app.inbox_messages
 WHERE status = 'redriven'
   AND ($1::text = '' OR consumer = $1)
   AND ($2::text = '' OR type = $2)
   AND (consumer, message_id, source) > ($3::text, $4::uuid, $6::text)
 ORDER BY consumer, message_id, source
 LIMIT $5

-- types
SELECT DISTINCT newest.type
  FROM (SELECT type, status FROM app.inbox_messages WHERE consumer = $1 ORDER BY consumer DESC, message_id DESC, source DESC LIMIT $2) AS newest
 WHERE newest.status = 'handled' AND newest.type IS NOT NULL

-- versions
SELECT version FROM app.inbox_messages_migrations ORDER BY version

