-- What a table consists of, for any driver and any role: rows of object, property and value.
SELECT 'column ' || a.attname, p.property, p.value
  FROM pg_attribute AS a
 CROSS JOIN LATERAL (VALUES ('type', format_type(a.atttypid, a.atttypmod)),
                            ('nullable', CASE WHEN a.attnotnull THEN 'no' ELSE 'yes' END)) AS p (property, value)
 WHERE a.attrelid = to_regclass('{{table}}') AND a.attnum > 0 AND NOT a.attisdropped
 UNION ALL
SELECT 'constraint ' || c.conname, 'primary key'
     , (SELECT string_agg(a.attname, ', ' ORDER BY k.m)
          FROM unnest(c.conkey) WITH ORDINALITY AS k (attnum, m)
          JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.attnum)
  FROM pg_constraint AS c
 WHERE c.conrelid = to_regclass('{{table}}') AND c.contype = 'p'
 UNION ALL
SELECT 'index ' || c.relname, p.property, p.value
  FROM pg_index AS i
  JOIN pg_class AS c ON c.oid = i.indexrelid
 CROSS JOIN LATERAL (VALUES ('unique', CASE WHEN i.indisunique THEN 'yes' ELSE 'no' END),
                            ('columns', (SELECT string_agg(pg_get_indexdef(i.indexrelid, m, false), ', ' ORDER BY m) FROM generate_series(1, i.indnkeyatts) AS m))
                    ) AS p (property, value)
 WHERE i.indrelid = to_regclass('{{table}}')
