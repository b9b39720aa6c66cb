-- Remove entries of rows that wait alone. A part of a transaction, under the shards' locks. @forgotten JSON list of {"id", "shard"}
-- Plan: the entries by {{name}}_blocks_pkey.
DELETE w
  FROM (SELECT block_id, shard FROM OPENJSON(@forgotten) WITH (block_id bigint '$.id', shard int '$.shard')) AS gone
 INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = gone.block_id AND w.shard = gone.shard
 WHERE COALESCE(w.ordering_key, N'') = N'';
