-- The rows of some messages that a filter selects. @message_ids (a JSON list), and what part_find_where.sql uses
-- Plan: the rows by {{name}}_once.
SELECT m.id, {{uuid m.message_id}} AS message, m.target_broker
  FROM (SELECT DISTINCT UNHEX(REPLACE(item, '-', '')) AS id FROM {{texts @message_ids}} AS listed) AS asked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX ({{name}}_once) ON m.message_id = asked.id
{{include part_find_where}}
