-- The rows that an action is to change, oldest first. No lock is held: they are tested again under the locks, by pick.sql. @limit
-- Plan, with settings_find.sql: one scan for each index that the statuses need ({{name}}_open, {{name}}_deferred_key and {{name}}_scheduled_ids, {{name}}_published,
-- {{name}}_abandoned), within the broker where one is named; by primary key where message ids are.
{{include part_find}}
 ORDER BY m.id
 LIMIT @limit
