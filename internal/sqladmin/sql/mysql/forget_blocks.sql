-- Remove entries of rows that wait alone. Runs under the shards' locks. @blocks (a JSON list of id, shard)
-- Plan: the entries by primary key.
{{giving way}} DELETE w
  FROM JSON_TABLE(@blocks, '$[*]' COLUMNS (id BIGINT PATH '$.id', shard INT PATH '$.shard')) AS gone
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = gone.id AND w.shard = gone.shard
 WHERE COALESCE(w.ordering_key, '') = ''
