-- The failed rows that hold back a key of a broker, the first of each key, oldest first. $1 broker, $2 limit, $3 rows to look at
-- Plan, with browse_settings.sql: one range scan of {{name}}_failing, sorts of what it found.
SELECT ordering_key, id, message_id::text, created_at, locked_until, status, last_error
  FROM (SELECT DISTINCT ON (ordering_key) *
          FROM (SELECT m.id, m.message_id, m.ordering_key, m.created_at, m.locked_until, m.status, m.last_error
                  FROM {{table}} AS m
                 WHERE m.target_broker = $1 AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                 ORDER BY m.id
                 LIMIT $3::bigint) AS failing
         WHERE status = 'failed' AND ordering_key IS NOT NULL
         ORDER BY ordering_key, id) AS first
 ORDER BY id
 LIMIT $2::bigint
