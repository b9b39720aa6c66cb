-- The rows that an action is to change, oldest first.
{{include part_find}}
SELECT id AS fanout_found, LOWER(CONVERT(char(36), message_id)) AS message_id, target_broker FROM @found ORDER BY id;
