-- The id of the entry, on the same connection.
SELECT LAST_INSERT_ID()
