-- The rows of all brokers that a filter selects. @brokers (a JSON list of them), see part_queues.sql and part_find_where.sql
-- Plan: one range scan of {{name}}_queue for each broker and each part that the statuses need.
SELECT m.id, {{uuid m.message_id}} AS message, m.target_broker
  FROM {{texts @brokers}} AS named
 STRAIGHT_JOIN {{include part_queues}}
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX ({{name}}_queue)
    ON m.target_broker = CONVERT(named.item USING utf8mb4) COLLATE utf8mb4_bin AND m.queue = queues.item
{{include part_find_where}}
