-- The first row of each key and shard of a broker that has failed and is not deferred, oldest first. The columns are those of key_blocks.sql.
-- @broker, @limit
-- Plan: the 2,000 oldest rows that have failed by {{name}}_failing, with a seek of {{name}}_pkey each.
SELECT TOP (@limit) f.ordering_key AS fanout_failed
     , f.id
     , LOWER(CONVERT(char(36), f.message_id)) AS message_id
     , f.status
     , N'backoff' AS reason
     , f.created_at AS since
     , COALESCE(f.locked_until, SYSUTCDATETIME()) AS until_at
     , CONVERT(bit, 1) AS failed
     , f.last_error
     , f.shard
  FROM (SELECT m.id, m.ordering_key, m.message_id, m.status, m.created_at, m.locked_until, m.last_error, m.shard
             , ROW_NUMBER() OVER (PARTITION BY m.key_hash, m.shard ORDER BY m.id) AS place
          FROM (SELECT TOP (2000) i.id
                  FROM {{table}} AS i WITH (INDEX({{name}}_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE i.target_broker = @broker AND i.last_error IS NOT NULL AND i.finished_at IS NULL
                 ORDER BY i.id) AS failing
         INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = failing.id
         WHERE m.status = N'failed' AND m.deferred = 0 AND m.ordering_key IS NOT NULL) AS f
 WHERE f.place = 1
 ORDER BY f.id;
