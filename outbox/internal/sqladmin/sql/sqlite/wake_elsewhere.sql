-- Rows that are about to come back may be blocks in a shard that is no longer theirs, since they were given another priority. What waits
-- behind them there waits until they are done. @ids (a JSON list)
-- Plan: the blocks and their rows by primary key.
UPDATE {{table}}_key_blocks AS w
   SET wake_at = NULL
     , reason  = 'backoff'
  FROM {{table}} AS m
 WHERE w.block_id IN (SELECT value FROM json_each(@ids)) AND m.id = w.block_id AND w.shard <> m.shard
