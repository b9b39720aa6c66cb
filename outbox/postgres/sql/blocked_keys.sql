-- The keys that wait for an operator, oldest first. $1 broker or '', $2 limit
-- Plan: reads the blocks of the broker.
SELECT target_broker, ordering_key, block_message_id::text, since
  FROM {{table}}_key_blocks
 WHERE ($1::text = '' OR target_broker = $1) AND reason = 'operator' AND wake_at = 'infinity'
 ORDER BY since, block_id
 LIMIT $2
