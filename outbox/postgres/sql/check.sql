-- What this version needs and the database has not. $1 the table's name
SELECT what
  FROM (SELECT 1, 'table ' || name, to_regclass(name) IS NOT NULL
          FROM unnest(ARRAY[$1::text, $1 || '_waiting', $1 || '_instances']) AS name
         UNION ALL
        SELECT 2, 'column ' || name, EXISTS (SELECT
                                               FROM pg_attribute
                                              WHERE attrelid = to_regclass($1::text) AND attname = name AND NOT attisdropped)
          FROM unnest('{id,created_at,available_at,expires_at,locked_until,published_at,finished_at,lock_token,attempts,
                        crashes,priority,lane,parked,isolated,message_id,status,locked_by,target_broker,stream,type,
                        ordering_key,content_type,aggregate_type,aggregate_id,correlation_id,causation_id,tenant_id,
                        broker_message_id,headers,last_error,payload}'::text[]) AS name
         WHERE to_regclass($1::text) IS NOT NULL
         UNION ALL
        SELECT 3, 'index ' || name, EXISTS (SELECT
                                              FROM pg_index
                                              JOIN pg_class ON pg_class.oid = indexrelid
                                             WHERE indrelid = to_regclass($1::text) AND relname = lower(name) AND indisvalid)
          FROM unnest(ARRAY['{{name}}_pkey', '{{name}}_open', '{{name}}_parked', '{{name}}_backfill', '{{name}}_published', '{{name}}_abandoned']) AS name
         WHERE to_regclass($1::text) IS NOT NULL) AS needs (kind, what, there)
 WHERE NOT there
 ORDER BY kind, what
