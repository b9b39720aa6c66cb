-- What the tables of the outbox are made of, in the words of the catalog: rows of object, property and value. Everybody may
-- read the catalog. What belongs to constraints is told with them, not as an index. $1 names of the tables
WITH tables AS (
    SELECT n, name, to_regclass(name) AS oid, CASE WHEN n > 1 THEN ' of ' || name ELSE '' END AS owner
      FROM unnest($1::text[]) WITH ORDINALITY AS listed (name, n)
),
facts AS (
    SELECT t.n, 1 AS kind, '' AS place, 'table ' || t.name AS object, p.*
      FROM tables AS t
      JOIN pg_class AS c ON c.oid = t.oid
     CROSS JOIN LATERAL (VALUES (1, 'kind', CASE c.relpersistence WHEN 'u' THEN 'unlogged ' WHEN 't' THEN 'temporary ' ELSE '' END
                                            || CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table'
                                                              WHEN 'f' THEN 'foreign table' ELSE 'view' END)) AS p (m, property, value)
     UNION ALL
    SELECT t.n, 2, lpad(a.attnum::text, 5), 'column ' || a.attname || t.owner, p.*
      FROM tables AS t
      JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      LEFT JOIN pg_collation AS l ON l.oid = a.attcollation AND NOT l.collisdeterministic
           -- Rows are ordered by id: a sequence that hands out descending numbers, or stocks of them to sessions, or begins anew, inverts it.
      LEFT JOIN LATERAL (SELECT CASE WHEN s.seqincrement < 0 THEN ', increment ' || s.seqincrement ELSE '' END
                                || CASE WHEN s.seqcache > 1 THEN ', cache ' || s.seqcache ELSE '' END
                                || CASE WHEN s.seqcycle THEN ', cycle' ELSE '' END
                           FROM pg_depend AS e
                           JOIN pg_sequence AS s ON s.seqrelid = e.objid
                          WHERE e.refclassid = 'pg_class'::regclass AND e.refobjid = a.attrelid AND e.refobjsubid = a.attnum
                            AND e.classid = 'pg_class'::regclass AND e.deptype = 'i') AS s (astray) ON t.n = 1 AND a.attidentity <> ''
     CROSS JOIN LATERAL (VALUES (1, 'type', format_type(a.atttypid, a.atttypmod)),
                                (2, 'collation', l.collname),
                                (3, 'nullable', CASE WHEN a.attnotnull THEN 'no' ELSE 'yes' END),
                                (4, 'identity', CASE a.attidentity WHEN 'd' THEN 'by default' WHEN 'a' THEN 'always' END || coalesce(s.astray, '')),
                                (5, 'default', CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END),
                                (6, 'generated', CASE WHEN a.attgenerated <> '' THEN pg_get_expr(d.adbin, d.adrelid) END),
                                (7, 'storage', CASE a.attgenerated WHEN 's' THEN 'stored' WHEN 'v' THEN 'virtual' END)) AS p (m, property, value)
     UNION ALL
    SELECT c.n, 3, c.conname, 'constraint ' || c.conname, p.*
           -- OFFSET 0: only what is ours is described. Of others, which may be dropped at this moment, the server might know nothing.
      FROM (SELECT t.n, c.oid, c.conname
              FROM tables AS t
              JOIN pg_constraint AS c ON c.conrelid = t.oid AND c.contype IN ('c', 'p', 'u', 'x')
            OFFSET 0) AS c
     CROSS JOIN LATERAL (VALUES (1, 'definition', pg_get_constraintdef(c.oid))) AS p (m, property, value)
     UNION ALL
    -- Of the server's own definition, without the options behind WITH: those are the owner's to choose.
    SELECT i.n, 4, i.relname, 'index ' || i.relname, p.*
      FROM (SELECT t.n, i.*, c.relname
              FROM tables AS t
              JOIN pg_index AS i ON i.indrelid = t.oid AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('p', 'u', 'x'))
              JOIN pg_class AS c ON c.oid = i.indexrelid
            OFFSET 0) AS i
     CROSS JOIN LATERAL (VALUES (1, 'unique', CASE WHEN i.indisunique THEN 'yes' ELSE 'no' END),
                                (2, 'columns', regexp_replace(substring(pg_get_indexdef(i.indexrelid) FROM ' USING (.*)$'),
                                                              '( WITH \([^)]*\))?( WHERE .*)?$', '')),
                                (3, 'predicate', pg_get_expr(i.indpred, i.indrelid)),
                                (4, 'valid', CASE WHEN i.indisvalid AND i.indisready THEN 'yes' ELSE 'no' END)) AS p (m, property, value)
)
SELECT object, property, regexp_replace(value, '\s*\n\s*', ' ', 'g')
  FROM facts
 WHERE value IS NOT NULL
 ORDER BY n, kind, place, m
