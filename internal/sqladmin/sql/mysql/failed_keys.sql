-- The failed rows of a broker that block their key and are not deferred, oldest first, among the first 10,000. The columns are those of
-- key_blocks.sql. @broker
-- Plan: a range scan of {{name}}_failing that stops after so many rows.
SELECT ordering_key, id, {{uuid message_id}}, status, 'backoff', {{micros created_at}}, {{micros until}}, TRUE, last_error, shard
  FROM (SELECT id, message_id, shard, ordering_key, created_at, COALESCE(locked_until, created_at) AS until, status, deferred, last_error
          FROM {{table}} FORCE INDEX ({{name}}_failing)
         WHERE failing = 1 AND target_broker = @broker
         ORDER BY id
         LIMIT 10000) AS failed
 WHERE status = 'failed' AND deferred = 0 AND ordering_key IS NOT NULL
 ORDER BY id
