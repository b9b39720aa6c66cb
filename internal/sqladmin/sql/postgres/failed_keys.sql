-- The failed rows that block a key of a broker and are not behind a block, the first of each key and shard, oldest first, among the first 2,000.
-- The columns are those of key_blocks.sql. @broker, @limit
-- Plan, with settings_browse.sql: one range scan of {{name}}_failing, sorts of what it found.
SELECT ordering_key, id, message_id::text, status, 'backoff', created_at, locked_until, true, last_error, shard
  FROM (SELECT DISTINCT ON (ordering_key, shard) *
          FROM (SELECT m.id, m.message_id, m.shard, m.ordering_key, m.created_at, m.locked_until, m.status, m.last_error
                  FROM {{table}} AS m
                 WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                 ORDER BY m.id
                 LIMIT 2000) AS failing
         WHERE status = 'failed' AND ordering_key IS NOT NULL
         ORDER BY ordering_key, shard, id) AS first
 ORDER BY id
 LIMIT @limit::bigint
