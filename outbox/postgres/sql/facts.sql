-- What the tables of the outbox are made of, in the words of the catalog: rows of object, property and value. Any role may
-- read the catalog. What belongs to constraints is listed with them, not as an index. Expressions are in the server's words:
-- with a search path of pg_catalog alone, whatever is not the server's own has its schema in front. $1 names of the tables, $2 their oids
WITH tables AS (
    SELECT n, name, oid, CASE WHEN n > 1 THEN ' of ' || name ELSE '' END AS owner
      FROM unnest($1::text[], $2::oid[]) WITH ORDINALITY AS listed (name, oid, n)
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
           -- A NOT NULL of PostgreSQL 18 may be there and hold for new rows alone.
      LEFT JOIN pg_constraint AS k ON k.conrelid = t.oid AND k.contype = 'n' AND NOT k.convalidated AND k.conkey = ARRAY[a.attnum]
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
                                (3, 'nullable', CASE WHEN NOT a.attnotnull THEN 'yes' WHEN k.oid IS NULL THEN 'no' ELSE 'not valid' END),
                                (4, 'identity', CASE a.attidentity WHEN 'd' THEN 'by default' WHEN 'a' THEN 'always' END || coalesce(s.astray, '')),
                                (5, 'default', CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END),
                                (6, 'generated', CASE WHEN a.attgenerated <> '' THEN pg_get_expr(d.adbin, d.adrelid) END),
                                (7, 'storage', CASE a.attgenerated WHEN 's' THEN 'stored' WHEN 'v' THEN 'virtual' END)) AS p (m, property, value)
     UNION ALL
    SELECT c.n, 3, c.conname, 'constraint ' || c.conname, p.*
           -- OFFSET 0: only what is ours is described. Of others, which may be dropped at this moment, the server might know nothing.
      FROM (SELECT t.n, c.*
              FROM tables AS t
              JOIN pg_constraint AS c ON c.conrelid = t.oid AND c.contype IN ('c', 'p', 'u', 'x')
            OFFSET 0) AS c
     CROSS JOIN LATERAL (SELECT string_agg(a.attname, ', ' ORDER BY k.m) AS names
                           FROM unnest(c.conkey) WITH ORDINALITY AS k (attnum, m)
                           JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.attnum) AS k
     CROSS JOIN LATERAL (VALUES (1, 'check', CASE c.contype WHEN 'c' THEN pg_get_expr(c.conbin, c.conrelid) END),
                                (2, 'primary key', CASE c.contype WHEN 'p' THEN k.names END),
                                (3, 'unique', CASE c.contype WHEN 'u' THEN k.names END),
                                (4, 'exclude', CASE c.contype WHEN 'x' THEN 'yes' END),
                                -- PostgreSQL 18 knows constraints that are not enforced.
                                (5, 'valid', CASE c.contype WHEN 'c' THEN CASE WHEN c.convalidated AND coalesce(to_jsonb(c) ->> 'conenforced', 'true') = 'true'
                                                                               THEN 'yes' ELSE 'no' END END),
                                (6, 'deferrable', CASE WHEN c.condeferrable THEN 'yes' END)) AS p (m, property, value)
     UNION ALL
    -- The options behind WITH are the owner's to choose.
    SELECT i.n, 4, i.relname, 'index ' || i.relname, p.*
      FROM (SELECT t.n, i.*, c.relname, m.amname
              FROM tables AS t
              JOIN pg_index AS i ON i.indrelid = t.oid AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('p', 'u', 'x'))
              JOIN pg_class AS c ON c.oid = i.indexrelid
              JOIN pg_am AS m ON m.oid = c.relam
            OFFSET 0) AS i
     CROSS JOIN LATERAL (SELECT string_agg(CASE k.attnum WHEN 0 THEN '(expression)' ELSE pg_get_indexdef(i.indexrelid, k.m::int, false) END
                                           -- Of an order or comparison of its own a column of our indexes has none.
                                           || CASE k.option & 1 WHEN 1 THEN ' desc' ELSE '' END || CASE k.option & 3 WHEN 1 THEN ' nulls last' WHEN 2 THEN ' nulls first' ELSE '' END
                                           || CASE WHEN o.opcdefault THEN '' ELSE ' ' || o.opcname END
                                           || CASE WHEN k.sorting IN (0, coalesce(a.attcollation, k.sorting)) THEN '' ELSE ' collate ' || l.collname END,
                                           ', ' ORDER BY k.m) AS names,
                                string_agg(CASE k.attnum WHEN 0 THEN pg_get_indexdef(i.indexrelid, k.m::int, false) END, ', ' ORDER BY k.m) AS expressions
                           FROM unnest(i.indkey::int2[], i.indoption::int2[], i.indclass::oid[], i.indcollation::oid[])
                                WITH ORDINALITY AS k (attnum, option, opclass, sorting, m)
                           LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum <> 0
                           JOIN pg_opclass AS o ON o.oid = k.opclass
                           LEFT JOIN pg_collation AS l ON l.oid = k.sorting
                          WHERE k.m <= i.indnkeyatts) AS k
     CROSS JOIN LATERAL (SELECT string_agg(a.attname, ', ' ORDER BY a.attname) AS names
                           FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, m)
                           JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                          WHERE k.m > i.indnkeyatts) AS included
     CROSS JOIN LATERAL (VALUES (1, 'kind', i.amname::text),
                                (2, 'unique', CASE WHEN i.indisunique THEN 'yes' ELSE 'no' END),
                                (3, 'columns', k.names),
                                (4, 'expression', k.expressions),
                                (5, 'included', included.names),
                                (6, 'predicate', pg_get_expr(i.indpred, i.indrelid)),
                                (7, 'valid', CASE WHEN i.indisvalid AND i.indisready THEN 'yes' ELSE 'no' END)) AS p (m, property, value)
)
SELECT object, property, regexp_replace(value, '\s*\n\s*', ' ', 'g')
  FROM facts
 WHERE value IS NOT NULL
 ORDER BY n, kind, place, m
