-- What a table consists of, for any user who may read it: rows of object, property and value.
SELECT CONCAT(N'column ', c.name COLLATE Latin1_General_100_BIN2), p.property, p.value
  FROM sys.columns AS c
  JOIN sys.types AS y ON y.user_type_id = c.user_type_id
 CROSS APPLY (SELECT CASE WHEN c.max_length = -1 THEN N'(max)'
                          WHEN y.name IN (N'nchar', N'nvarchar') THEN CONCAT(N'(', c.max_length / 2, N')')
                          WHEN y.name IN (N'char', N'varchar', N'binary', N'varbinary') THEN CONCAT(N'(', c.max_length, N')')
                          WHEN y.name = N'datetime2' THEN CONCAT(N'(', c.scale, N')')
                          ELSE N'' END) AS l (length)
 CROSS APPLY (VALUES (N'type', CONCAT(y.name COLLATE Latin1_General_100_BIN2, l.length))
                   , (N'collation', c.collation_name COLLATE Latin1_General_100_BIN2)
                   , (N'nullable', CASE c.is_nullable WHEN 1 THEN N'yes' ELSE N'no' END)) AS p (property, value)
 WHERE c.object_id = OBJECT_ID(N'{{table}}')
 UNION ALL
SELECT CONCAT(N'index ', i.name COLLATE Latin1_General_100_BIN2), p.property, p.value
  FROM sys.indexes AS i
 CROSS APPLY (VALUES (N'unique', CASE i.is_unique WHEN 1 THEN N'yes' ELSE N'no' END)
                   , (N'columns', STUFF((SELECT CONCAT(N', ', c.name COLLATE Latin1_General_100_BIN2, CASE x.is_descending_key WHEN 1 THEN N' DESC' END)
                                           FROM sys.index_columns AS x
                                           JOIN sys.columns AS c ON c.object_id = x.object_id AND c.column_id = x.column_id
                                          WHERE x.object_id = i.object_id AND x.index_id = i.index_id AND x.key_ordinal > 0
                                          ORDER BY x.key_ordinal
                                            FOR XML PATH('')), 1, 2, N''))) AS p (property, value)
 WHERE i.object_id = OBJECT_ID(N'{{table}}') AND i.name IS NOT NULL
