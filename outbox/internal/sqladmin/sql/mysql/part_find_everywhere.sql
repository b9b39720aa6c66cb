-- The rows of all brokers that a filter selects. See part_queues.sql and part_find_where.sql
-- Plan: one range scan of {{name}}_queue for each broker and each part that the statuses need.
SELECT m.id, {{uuid m.message_id}} AS message, m.target_broker
  FROM (WITH RECURSIVE {{include part_all_brokers}}
        SELECT broker FROM all_brokers WHERE broker IS NOT NULL) AS named
 STRAIGHT_JOIN {{include part_queues}}
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX ({{name}}_queue) ON m.target_broker = named.broker AND m.queue = queues.item
{{include part_find_where}}
