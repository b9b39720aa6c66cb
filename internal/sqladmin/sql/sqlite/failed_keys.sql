-- The failed rows of a broker that block their key in their shard and are not deferred, oldest first, among the first 10,000. The columns are
-- those of key_blocks.sql. @broker
-- Plan: a range scan of {{name}}_failing that stops after so many rows.
SELECT ordering_key
     , id
     , lower(message_id)
     , status
     , 'backoff'
     , created_at
     , coalesce(locked_until, created_at)
     , true
     , last_error
     , shard
  FROM (SELECT id, message_id, ordering_key, shard, created_at, locked_until, status, deferred, last_error
          FROM {{table}} INDEXED BY {{name}}_failing
         WHERE target_broker = @broker AND last_error IS NOT NULL AND finished_at IS NULL
         ORDER BY id
         LIMIT 10000)
 WHERE status = 'failed' AND deferred = 0 AND ordering_key IS NOT NULL
 ORDER BY id
