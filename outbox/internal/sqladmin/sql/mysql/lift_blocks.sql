-- Blocks of which the row is abandoned have nothing to wait for: the next claim moves them on. Runs under the shards' locks. @ids (a JSON list)
-- Plan: the blocks by primary key.
{{giving way}} UPDATE {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = picked.item
   SET w.wake_at = NULL
     , w.reason  = 'backoff'
