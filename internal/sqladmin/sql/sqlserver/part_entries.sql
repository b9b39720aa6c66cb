-- The entries among the key blocks of the rows in @listed, and of their keys, into @entries, with what is decided by.
-- Plan: the rows by {{name}}_pkey; for each row one seek of {{name}}_blocks_key and one of {{name}}_blocks_pkey.
DECLARE @entries TABLE (block_id bigint NOT NULL, shard int NOT NULL, operator bit NOT NULL, back bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @entries (block_id, shard, operator, back)
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN {{table}}_key_blocks AS w WITH (FORCESEEK) ON w.block_id = l.id
 UNION
SELECT w.block_id, w.shard, CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END
     , CASE WHEN w.reason = N'backoff' AND w.wake_at IS NULL THEN 1 ELSE 0 END
  FROM @listed AS l
 INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = l.id
 INNER JOIN {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
    ON w.target_broker = m.target_broker AND w.key_hash = m.key_hash AND w.ordering_key IS NOT NULL;
