-- Make blocks of rows that wait for their time. Named parameters: ids (JSON), unordered, now. A block that waits again keeps
-- its key, for there may be followers behind it.
INSERT INTO {{table}}_key_blocks (block_id, block_message_id, target_broker, shard, ordering_key, wake_at, reason, since)
SELECT id, message_id, target_broker, shard
     , CASE WHEN NOT :unordered THEN ordering_key END
     , coalesce(locked_until, 0)
     , 'backoff'
     , :now
  FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(:ids))
    ON CONFLICT (block_id, shard) DO UPDATE
       SET wake_at = excluded.wake_at, reason = excluded.reason, ordering_key = coalesce(excluded.ordering_key, ordering_key)
