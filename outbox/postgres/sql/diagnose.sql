-- How is this server set up, and what of that concerns the outbox? Any role may ask. The tables need not exist.
-- $1 names of the tables, $2 the wanted columns of the first, $3 the wanted indexes of the first, in lower case
WITH tables AS (
    SELECT n, name, to_regclass(name) AS oid
      FROM unnest($1::text[]) WITH ORDINALITY AS listed (name, n)
     WHERE to_regclass(name) IS NOT NULL
)
SELECT current_setting('server_version')
     , current_setting('server_version_num')::int
     , pg_is_in_recovery()
     , current_setting('default_transaction_read_only')
     , current_setting('default_transaction_isolation')
     , current_setting('synchronous_commit')
     , current_setting('fsync')
     , current_setting('full_page_writes')
     , current_setting('autovacuum')
       -- Tables on which autovacuum is switched off.
     , ARRAY(SELECT name
               FROM tables
               JOIN pg_class USING (oid)
              CROSS JOIN LATERAL pg_options_to_table(reloptions)
              WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean
              ORDER BY n)
       -- Tables whose rows a policy may hide from this role.
     , ARRAY(SELECT name FROM tables WHERE row_security_active(oid) ORDER BY n)
       -- Rights that a relay needs and this role has not: on the messages, those that wait, the shards, the pauses, the
       -- instances, and the record of operators.
     , ARRAY(SELECT wanted || ' ON ' || name
               FROM tables
              CROSS JOIN LATERAL unnest(CASE n WHEN 1 THEN '{SELECT,UPDATE,DELETE}'::text[]
                                               WHEN 3 THEN '{SELECT,INSERT,UPDATE}'
                                               WHEN 4 THEN '{SELECT}'
                                               WHEN 6 THEN '{SELECT}'
                                               ELSE '{SELECT,INSERT,UPDATE,DELETE}' END) WITH ORDINALITY AS needs (wanted, m)
              WHERE NOT has_table_privilege(oid, wanted)
              ORDER BY n, m)
       -- Columns of the owner's that an insert cannot leave out.
     , ARRAY(SELECT attname::text
               FROM tables
               JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
              WHERE n = 1 AND attnotnull AND NOT atthasdef AND attidentity = '' AND lower(attname) <> ALL ($2::text[])
              ORDER BY attnum)
       -- Indexes of the owner's that name a column which a claim changes: each claim then writes to every index.
     , ARRAY(SELECT indexrelid::regclass::text
               FROM tables
               JOIN pg_index ON indrelid = tables.oid
               JOIN pg_class AS i ON i.oid = indexrelid AND lower(i.relname) <> ALL ($3::text[])
              WHERE n = 1
                AND EXISTS (SELECT
                              FROM pg_attribute AS a
                             WHERE a.attrelid = indrelid
                               AND a.attname IN ('status', 'lock_token', 'locked_by', 'locked_until', 'attempts', 'crashes', 'isolated')
                               AND (a.attnum = ANY (indkey)
                                    OR EXISTS (SELECT -- in an expression, or in the predicate
                                                 FROM pg_depend
                                                WHERE classid = 'pg_class'::regclass AND objid = indexrelid
                                                  AND refclassid = 'pg_class'::regclass AND refobjid = indrelid AND refobjsubid = a.attnum)))
              ORDER BY 1)
