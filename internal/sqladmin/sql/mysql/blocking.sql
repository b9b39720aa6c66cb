-- The abandoned rows for which ordering keys wait until an operator acts, as far as a filter selects them, oldest first, up to @limit. They are
-- tested again under the locks, by pick.sql. @message_ids (a JSON list), none = any, and what part_find_where.sql uses
-- Plan: reads the blocks; their rows by primary key.
SELECT m.id, {{uuid m.message_id}} AS message, m.target_broker
  FROM {{table}}_key_blocks AS w
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = w.block_id
{{include part_find_where}}
   AND w.reason = 'operator' AND w.wake_at = '9999-12-31' AND w.ordering_key IS NOT NULL
   AND (JSON_LENGTH(@message_ids) = 0 OR m.message_id IN (SELECT UNHEX(REPLACE(asked.item, '-', '')) FROM {{texts @message_ids}} AS asked))
 ORDER BY m.id
 LIMIT @limit
