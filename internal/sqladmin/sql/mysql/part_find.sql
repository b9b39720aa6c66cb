-- The rows of one broker that a filter selects. @broker, and what part_queues.sql and part_find_where.sql use
-- Plan: one range scan of {{name}}_queue for each part that the statuses need.
SELECT m.id, {{uuid m.message_id}} AS message, m.target_broker
  FROM {{include part_queues}}
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX ({{name}}_queue) ON m.target_broker = @broker AND m.queue = queues.item
{{include part_find_where}}
