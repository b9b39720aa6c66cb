-- Send the blocks in the order of their ids, and then their followers.
SELECT block_id AS fanout_block
     , COALESCE(ordering_key, N'') AS ordering_key
     , CONVERT(bit, CASE WHEN ordering_key IS NULL THEN 0 ELSE 1 END) AS has_key
     , due
     , done
     , waits
     , scheduled
  FROM @blocks
 WHERE done IS NOT NULL
 ORDER BY block_id;
SELECT block_id AS fanout_follower
     , id
  FROM @followers
 ORDER BY block_id, id;
