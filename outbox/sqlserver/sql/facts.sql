-- What the tables of the outbox are made of, in the words of the catalog: rows of object, property and value. A user who may
-- not see definitions gets question marks, and perhaps no constraints; the property "definitions" tells. A computed column
-- has the type of its expression. Collations are spelled out because those of the catalog, of the database and of JSON may
-- differ. OPENJSON is a need of the store itself: below compatibility level 130 it is an error. @tables: names, as JSON
DECLARE @named TABLE (name nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL, owner nvarchar(300) COLLATE Latin1_General_100_BIN2 NOT NULL);
INSERT INTO @named (name, owner) SELECT [value], CASE [key] WHEN N'0' THEN N'' ELSE CONCAT(N' of ', [value]) END FROM OPENJSON(@tables);

SELECT CONCAT(N'table ', t.name) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.objects AS o ON o.object_id = OBJECT_ID(t.name)
  LEFT JOIN sys.tables AS d ON d.object_id = o.object_id
 CROSS APPLY (VALUES (N'kind', CASE o.type WHEN 'U' THEN N'table' ELSE o.type_desc COLLATE Latin1_General_100_BIN2 END)
                   , (N'lock escalation', d.lock_escalation_desc COLLATE Latin1_General_100_BIN2)
                   , (N'definitions', CASE HAS_PERMS_BY_NAME(t.name, N'OBJECT', N'VIEW DEFINITION') WHEN 0 THEN N'hidden' END)
             ) AS p (property, value)
 WHERE p.value IS NOT NULL;

SELECT CONCAT(N'column ', c.name COLLATE Latin1_General_100_BIN2, t.owner) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.columns AS c ON c.object_id = OBJECT_ID(t.name)
  JOIN sys.types AS y ON y.user_type_id = c.user_type_id
  LEFT JOIN sys.default_constraints AS d ON d.object_id = c.default_object_id
  LEFT JOIN sys.identity_columns AS i ON i.object_id = c.object_id AND i.column_id = c.column_id
  LEFT JOIN sys.computed_columns AS x ON x.object_id = c.object_id AND x.column_id = c.column_id
 CROSS APPLY (SELECT CASE WHEN c.max_length = -1 THEN N'(max)'
                          WHEN y.name IN (N'nchar', N'nvarchar') THEN CONCAT(N'(', c.max_length / 2, N')')
                          WHEN y.name IN (N'char', N'varchar', N'binary', N'varbinary') THEN CONCAT(N'(', c.max_length, N')')
                          WHEN y.name IN (N'datetime2', N'datetimeoffset', N'time') THEN CONCAT(N'(', c.scale, N')')
                          ELSE N'' END) AS l (length)
 CROSS APPLY (VALUES (N'type', CASE c.is_computed WHEN 0 THEN CONCAT(y.name COLLATE Latin1_General_100_BIN2, l.length) END)
                   , (N'collation', CASE c.is_computed WHEN 0 THEN c.collation_name COLLATE Latin1_General_100_BIN2 END)
                   , (N'nullable', CASE c.is_nullable WHEN 1 THEN N'yes' ELSE N'no' END)
                   , (N'identity', CASE c.is_identity WHEN 1 THEN CONCAT(N'by ', CONVERT(bigint, i.increment_value)) END)
                   , (N'default', CASE WHEN c.default_object_id <> 0 THEN COALESCE(d.definition COLLATE Latin1_General_100_BIN2, NCHAR(63)) END)
                   , (N'generated', CASE c.is_computed WHEN 1 THEN COALESCE(x.definition COLLATE Latin1_General_100_BIN2, NCHAR(63)) END)
                   , (N'persisted', CASE x.is_persisted WHEN 1 THEN N'yes' WHEN 0 THEN N'no' END)
             ) AS p (property, value)
 WHERE p.value IS NOT NULL;

SELECT CONCAT(N'constraint ', k.name COLLATE Latin1_General_100_BIN2) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.check_constraints AS k ON k.parent_object_id = OBJECT_ID(t.name)
 CROSS APPLY (VALUES (N'check', COALESCE(k.definition COLLATE Latin1_General_100_BIN2, NCHAR(63)))
                   , (N'enabled', CASE k.is_disabled WHEN 0 THEN N'yes' ELSE N'no' END)
                   , (N'trusted', CASE k.is_not_trusted WHEN 0 THEN N'yes' ELSE N'no' END)
             ) AS p (property, value);

SELECT CONCAT(N'index ', i.name COLLATE Latin1_General_100_BIN2) AS fanout_object, p.property, p.value
  FROM @named AS t
  JOIN sys.indexes AS i ON i.object_id = OBJECT_ID(t.name) AND i.name IS NOT NULL
 CROSS APPLY (VALUES (N'kind', i.type_desc COLLATE Latin1_General_100_BIN2)
                   , (N'unique', CASE i.is_unique WHEN 1 THEN N'yes' ELSE N'no' END)
                   , (N'columns', STUFF((SELECT CONCAT(N', ', c.name COLLATE Latin1_General_100_BIN2, CASE x.is_descending_key WHEN 1 THEN N' DESC' END)
                                           FROM sys.index_columns AS x
                                           JOIN sys.columns AS c ON c.object_id = x.object_id AND c.column_id = x.column_id
                                          WHERE x.object_id = i.object_id AND x.index_id = i.index_id AND x.key_ordinal > 0
                                          ORDER BY x.key_ordinal
                                            FOR XML PATH('')), 1, 2, N''))
                   , (N'included', STUFF((SELECT CONCAT(N', ', c.name COLLATE Latin1_General_100_BIN2)
                                            FROM sys.index_columns AS x
                                            JOIN sys.columns AS c ON c.object_id = x.object_id AND c.column_id = x.column_id
                                           WHERE x.object_id = i.object_id AND x.index_id = i.index_id AND x.is_included_column = 1
                                           ORDER BY c.name COLLATE Latin1_General_100_BIN2
                                             FOR XML PATH('')), 1, 2, N''))
                   , (N'predicate', CASE i.has_filter WHEN 1 THEN COALESCE(i.filter_definition COLLATE Latin1_General_100_BIN2, NCHAR(63)) END)
                   , (N'enabled', CASE i.is_disabled WHEN 0 THEN N'yes' ELSE N'no' END)
             ) AS p (property, value)
 WHERE p.value IS NOT NULL;
