-- How sessions are set that do not say otherwise.
SELECT 'global completion_type', @@GLOBAL.completion_type
 UNION ALL
SELECT 'global sql_select_limit', CONCAT(@@GLOBAL.sql_select_limit)
 UNION ALL
SELECT 'global sql_mode', @@GLOBAL.sql_mode
