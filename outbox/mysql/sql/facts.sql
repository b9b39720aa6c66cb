-- What a table is made of, in the words of the catalog: rows of kind, name, property and value. @database or '' for that of the session, @name
SELECT 'table', '', 'engine', COALESCE(engine, table_type)
  FROM information_schema.tables
 WHERE table_schema = COALESCE(NULLIF(@database, ''), DATABASE()) AND table_name = @name
 UNION ALL
SELECT 'column', column_name, property.name
     , CASE property.name WHEN 'type' THEN column_type WHEN 'collation' THEN collation_name WHEN 'nullable' THEN LOWER(is_nullable)
                          WHEN 'default' THEN column_default WHEN 'generated' THEN NULLIF(generation_expression, '')
                          WHEN 'extra' THEN NULLIF(TRIM(REPLACE(LOWER(extra), 'default_generated', '')), '') END
  FROM information_schema.columns
 CROSS JOIN (SELECT 'type' AS name UNION ALL SELECT 'collation' UNION ALL SELECT 'nullable' UNION ALL SELECT 'default' UNION ALL SELECT 'generated'
             UNION ALL SELECT 'extra') AS property
 WHERE table_schema = COALESCE(NULLIF(@database, ''), DATABASE()) AND table_name = @name
 UNION ALL
SELECT 'constraint', constraint_name, '', ''
  FROM information_schema.table_constraints
 WHERE table_schema = COALESCE(NULLIF(@database, ''), DATABASE()) AND table_name = @name AND constraint_type = 'CHECK'
 UNION ALL
SELECT 'index', index_name, 'unique', MAX(CASE non_unique WHEN 0 THEN 'yes' ELSE 'no' END)
  FROM information_schema.statistics
 WHERE table_schema = COALESCE(NULLIF(@database, ''), DATABASE()) AND table_name = @name
 GROUP BY index_name
 UNION ALL
SELECT 'index', index_name, 'columns', GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', ')
  FROM information_schema.statistics
 WHERE table_schema = COALESCE(NULLIF(@database, ''), DATABASE()) AND table_name = @name
 GROUP BY index_name
