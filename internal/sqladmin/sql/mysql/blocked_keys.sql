-- The keys that wait for an operator, oldest first. @broker or '', @limit
-- Plan: reads all blocks, or those of the broker by {{name}}_blocks_wake.
SELECT target_broker, ordering_key, {{uuid block_message_id}}, {{micros since}}
  FROM {{table}}_key_blocks
 WHERE (LENGTH(@broker) = 0 OR target_broker = @broker) AND reason = 'operator' AND wake_at = '9999-12-31' AND ordering_key IS NOT NULL
 ORDER BY since, block_id
 LIMIT @limit
