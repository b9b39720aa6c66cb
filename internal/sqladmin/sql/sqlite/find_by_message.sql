-- The rows that an action is to change, oldest first, up to @limit. They are tested again under the lock, by pick.sql.
{{include part_find_by_message}}
 ORDER BY m.id
 LIMIT @limit
