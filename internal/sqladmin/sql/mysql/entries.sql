-- The entries of a broker among the key blocks that wait for an operator, or for a schedule whose time lies ahead: shard, key ('' = the row waits
-- alone), row, and whether it is an operator. @limit of each kind and shard, of which the second ones are among as many that wait for a time.
-- @broker, @limit
-- Plan: for each shard two range scans of {{name}}_blocks_wake that stop after so many entries.
SELECT found.shard, COALESCE(found.ordering_key, ''), found.block_id, found.operator
  FROM (
{{each shard part_entries_shard}}
       ) AS found
 WHERE CASE WHEN found.operator THEN found.reason = 'operator' AND found.ordering_key IS NOT NULL ELSE found.reason = 'scheduled' END
