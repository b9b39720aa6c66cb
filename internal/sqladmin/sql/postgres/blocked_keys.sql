-- The keys that wait for an operator, oldest first. @broker or '', @limit
-- Plan: reads the blocks of the broker.
SELECT target_broker, ordering_key, block_message_id::text, since
  FROM {{table}}_key_blocks
 WHERE (@broker::text = '' OR target_broker = @broker) AND reason = 'operator' AND wake_at = 'infinity'
 ORDER BY since, block_id
 LIMIT @limit
