-- The keys that wait for an operator, oldest first. @broker or '', @limit
-- A dirty read: it does not wait for locks.
-- Plan: reads the blocks.
SELECT TOP (@limit) target_broker AS fanout_blocked_key
     , ordering_key
     , LOWER(CONVERT(char(36), block_message_id)) AS block_message_id
     , since
  FROM {{table}}_key_blocks WITH (NOLOCK)
 WHERE (@broker = N'' OR target_broker = @broker) AND reason = N'operator' AND wake_at = '9999-12-31'
 ORDER BY since, block_id;
