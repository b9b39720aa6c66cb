-- The rows that an action is to change, oldest first, up to @limit. They are tested again under the locks, by pick.sql.
{{include part_find_everywhere}}
 ORDER BY m.id
 LIMIT @limit
