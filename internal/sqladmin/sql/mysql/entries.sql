-- The ordering keys of a broker that wait for an operator: shard, key, and the row of the block. @limit for each shard. @broker, @limit
-- Plan: for each shard a range scan of {{name}}_blocks_wake that stops after so many entries.
SELECT found.shard, found.ordering_key, found.block_id
  FROM (
{{each shard part_entries_shard}}
       ) AS found
 WHERE found.reason = 'operator' AND found.ordering_key IS NOT NULL
 LIMIT @limit
