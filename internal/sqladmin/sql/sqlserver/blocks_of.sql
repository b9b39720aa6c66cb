-- The entries among the key blocks of rows, and of their keys. It takes no locks, like pick.sql. @ids a JSON list
-- Plan: the rows by {{name}}_pkey; for each row one seek of {{name}}_blocks_key and one of {{name}}_blocks_pkey.
DECLARE @listed TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @listed (id)
SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$');
{{include part_entries}}
SELECT w.block_id AS fanout_entry, N'' AS message_id, w.target_broker, COALESCE(w.ordering_key, N'') AS ordering_key, w.shard
     , e.operator, e.back
  FROM @entries AS e
 INNER JOIN {{table}}_key_blocks AS w WITH (FORCESEEK) ON w.block_id = e.block_id AND w.shard = e.shard;
