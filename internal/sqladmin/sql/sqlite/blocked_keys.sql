-- The keys that wait for an operator, oldest first. @broker or '', @limit Reads all blocks.
SELECT target_broker, ordering_key, lower(block_message_id), since
  FROM {{table}}_key_blocks
 WHERE (@broker = '' OR target_broker = @broker) AND reason = 'operator' AND wake_at = 9223372036854775807
 ORDER BY since, block_id
 LIMIT @limit
