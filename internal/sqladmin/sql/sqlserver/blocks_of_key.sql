-- The blocks of a key, one for each class that has one. It takes no locks, like pick.sql. @broker, @key
-- Plan: the key's blocks by {{name}}_blocks_key.
SELECT w.block_id AS fanout_entry, N'' AS message_id, w.target_broker, w.ordering_key, w.shard
     , CONVERT(bit, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END) AS operator
     , CONVERT(bit, CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END) AS back
  FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
 WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
   AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', CONVERT(nvarchar(1024), @key)))
   AND DATALENGTH(w.ordering_key) = DATALENGTH(@key);
