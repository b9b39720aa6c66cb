-- The abandoned rows for which ordering keys wait until an operator acts, as far as a filter selects them, oldest first. No lock is held: they
-- are tested again under the locks, by pick.sql. @limit
-- Plan, with settings_find.sql: reads the blocks, or those of the broker by {{name}}_blocks_wake, and their rows by {{name}}_pkey.
SELECT m.id, m.message_id::text, m.target_broker
  FROM {{table}}_key_blocks AS w
  JOIN {{table}} AS m ON m.message_id = w.block_message_id AND m.target_broker = w.target_broker
{{include part_find_where}}
   AND w.reason = 'operator' AND w.wake_at = 'infinity'
 ORDER BY m.id
 LIMIT @limit
