-- Remove entries of rows that wait alone. Runs under the lock. @blocks (a JSON list of id, shard)
-- Plan: the entries by primary key.
DELETE FROM {{table}}_key_blocks
 WHERE COALESCE(ordering_key, '') = ''
   AND (block_id, shard) IN (SELECT json_extract(value, '$.id'), json_extract(value, '$.shard') FROM json_each(@blocks))
