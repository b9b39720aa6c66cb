-- What a table is made of, in the words of the catalog: rows of kind, name, property and value. What is missing here, SHOW CREATE TABLE
-- tells. @database or NULL for that of the session, @name
SELECT 'table', '', 'engine', COALESCE(engine, table_type)
  FROM information_schema.tables
 WHERE table_schema = COALESCE(@database, DATABASE()) AND table_name = @name
 UNION ALL
SELECT 'column', column_name, property.name
     , CASE property.name WHEN 'type' THEN column_type WHEN 'collation' THEN collation_name WHEN 'nullable' THEN LOWER(is_nullable)
                          WHEN 'extra' THEN NULLIF(TRIM(REPLACE(LOWER(extra), 'default_generated', '')), '') END
  FROM information_schema.columns
 CROSS JOIN (SELECT 'type' AS name UNION ALL SELECT 'collation' UNION ALL SELECT 'nullable' UNION ALL SELECT 'extra') AS property
 WHERE table_schema = COALESCE(@database, DATABASE()) AND table_name = @name
