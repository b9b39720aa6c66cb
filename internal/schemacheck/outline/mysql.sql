-- What a table consists of, for any driver and any user who may read it: rows of object, property and value.
SELECT CONCAT('column ', column_name), property.name
     , CASE property.name WHEN 'type' THEN column_type WHEN 'collation' THEN collation_name ELSE LOWER(is_nullable) END
  FROM information_schema.columns
 CROSS JOIN (SELECT 'type' AS name UNION ALL SELECT 'collation' UNION ALL SELECT 'nullable') AS property
 WHERE table_schema = COALESCE(NULLIF('{{schema}}', ''), DATABASE()) AND table_name = '{{name}}'
 UNION ALL
SELECT CONCAT('index ', index_name), property.name
     , CASE property.name WHEN 'unique' THEN CASE MAX(non_unique) WHEN 0 THEN 'yes' ELSE 'no' END
                          ELSE GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', ') END
  FROM information_schema.statistics
 CROSS JOIN (SELECT 'unique' AS name UNION ALL SELECT 'columns') AS property
 WHERE table_schema = COALESCE(NULLIF('{{schema}}', ''), DATABASE()) AND table_name = '{{name}}'
 GROUP BY index_name, property.name
