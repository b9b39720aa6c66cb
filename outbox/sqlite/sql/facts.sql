-- What the tables of the outbox are made of: rows of object, property and value. The property "text" is the statement that
-- made the object, which holds what no pragma tells. Named parameter: tables, their names as a JSON array
WITH named AS (
    SELECT key AS n, value AS name, CASE key WHEN 0 THEN '' ELSE ' of ' || value END AS owner FROM json_each(:tables)
)
SELECT object, property, value
  FROM (SELECT n, 1 AS kind, 0 AS place, 1 AS m, 'table ' || named.name AS object, 'kind' AS property, type AS value
          FROM named
          JOIN sqlite_schema AS s ON s.name = named.name COLLATE NOCASE AND s.type IN ('table', 'view')
         UNION ALL
        SELECT n, 2, c.cid, p.key, 'column ' || c.name || owner
             , CASE p.key WHEN 0 THEN 'type' WHEN 1 THEN 'nullable' WHEN 2 THEN 'default' WHEN 3 THEN 'primary key' ELSE 'storage' END
             , p.value
          FROM named, pragma_table_xinfo(named.name) AS c
             , json_each(json_array(upper(c.type), iif(c."notnull", 'no', 'yes'), c.dflt_value, iif(c.pk, 'part ' || c.pk, NULL),
                                    CASE c.hidden WHEN 2 THEN 'virtual' WHEN 3 THEN 'stored' END)) AS p
         UNION ALL
        SELECT n, 3, 0, 1, 'table ' || named.name, 'text', s.sql
          FROM named
          JOIN sqlite_schema AS s ON s.name = named.name COLLATE NOCASE AND s.type = 'table'
         UNION ALL
        SELECT n, 4, s.rowid, 1, 'index ' || s.name, 'text', s.sql
          FROM named
          JOIN sqlite_schema AS s ON s.tbl_name = named.name COLLATE NOCASE AND s.type = 'index')
 WHERE value IS NOT NULL
 ORDER BY n, kind, place, m
