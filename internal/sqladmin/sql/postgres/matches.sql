-- How many rows a filter selects, up to @limit.
-- Plan, with settings_find.sql: one scan for each index that the statuses need ({{name}}_open, {{name}}_deferred_key and {{name}}_scheduled_ids, {{name}}_published,
-- {{name}}_abandoned), within the broker where one is named; by primary key where message ids are.
SELECT count(*) FROM (
{{include part_find}}
 LIMIT @limit) AS m
