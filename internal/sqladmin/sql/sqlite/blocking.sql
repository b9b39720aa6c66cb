-- The abandoned rows for which ordering keys wait until an operator acts, as far as a filter selects them, oldest first, up to @limit. They are
-- tested again under the lock, by pick.sql. @message_ids (a JSON list), none = any, and what part_find_where.sql uses
-- Plan: reads the blocks; their rows by primary key.
SELECT m.id, lower(m.message_id), m.target_broker
  FROM {{table}}_key_blocks AS w
 CROSS JOIN {{table}} AS m ON m.id = w.block_id
{{include part_find_where}}
   AND w.reason = 'operator' AND w.wake_at = 9223372036854775807 AND w.ordering_key IS NOT NULL
   AND (json_array_length(@message_ids) = 0 OR m.message_id IN (SELECT value FROM json_each(@message_ids)))
 ORDER BY m.id
 LIMIT @limit
