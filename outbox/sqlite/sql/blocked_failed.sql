-- The failed rows of a broker that hold back their key and are not deferred, oldest first. Named parameters: broker, rows (to look at).
-- Plan: a range scan of {{name}}_failing that stops after so many rows.
SELECT ordering_key
     , id
     , message_id
     , 'backoff'
     , created_at
     , coalesce(locked_until, created_at)
     , status
     , last_error
  FROM (SELECT id, message_id, ordering_key, created_at, locked_until, status, deferred, last_error
          FROM {{table}} INDEXED BY {{name}}_failing
         WHERE target_broker = :broker AND last_error IS NOT NULL AND finished_at IS NULL
         ORDER BY id
         LIMIT :rows)
 WHERE status = 'failed' AND deferred = 0 AND ordering_key IS NOT NULL
 ORDER BY id
