-- Rows that are about to come back may be blocks in a shard that is no longer theirs, since they were given another priority. What waits
-- behind them there waits until they are done. Runs under the shards' locks. @ids (a JSON list)
-- Plan: the rows and the blocks by primary key.
{{giving way}} UPDATE {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.item
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = m.id
   SET w.wake_at = NULL
     , w.reason  = 'backoff'
 WHERE w.shard <> m.shard
