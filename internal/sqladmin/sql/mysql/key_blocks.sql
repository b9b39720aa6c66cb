-- The keys of a broker that wait behind a block: for an operator, or for a time. Of each kind and shard 10,000 are read, with those of rows
-- that have no key. @broker
-- Plan: two range scans of {{name}}_blocks_wake for each shard; the blocks' rows by primary key.
SELECT w.ordering_key
     , w.block_id
     , {{uuid w.block_message_id}}
     , COALESCE(m.status, 'abandoned') -- the row may be gone
     , w.reason
     , {{micros w.since}}
     , CASE WHEN w.wake_at <> '9999-12-31' THEN {{micros w.wake_at}} END
     , FALSE
     , NULL -- errors are read by errors_of.sql, for those that are shown
     , w.shard
  FROM (
{{each shard part_key_blocks_shard}}
       ) AS w
  LEFT JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = w.block_id
 WHERE w.ordering_key IS NOT NULL
