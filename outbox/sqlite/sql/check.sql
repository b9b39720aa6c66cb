-- What this version needs and the database has not. Named parameter: name, the table's name without its schema.
SELECT what
  FROM (SELECT 1 AS kind, 'table {{table}}' AS what, EXISTS (SELECT 1 FROM pragma_table_info(:name)) AS there
         UNION ALL
        SELECT 2, 'table {{table}}_' || value, EXISTS (SELECT 1 FROM pragma_table_info(:name || '_' || value))
          FROM json_each('["locks", "waiting"]')
         UNION ALL
        SELECT 3, 'column ' || value, value IN (SELECT name FROM pragma_table_xinfo(:name))
          FROM json_each('["id","created_at","available_at","expires_at","locked_until","published_at","finished_at","lock_token",
                           "attempts","crashes","priority","lane","parked","isolated","message_id","status","locked_by",
                           "target_broker","stream","type","ordering_key","content_type","aggregate_type","aggregate_id",
                           "correlation_id","causation_id","tenant_id","broker_message_id","headers","last_error","payload"]')
         WHERE EXISTS (SELECT 1 FROM pragma_table_info(:name))
         UNION ALL
        SELECT 4, 'index ' || value, value IN (SELECT name FROM pragma_index_list(:name))
          FROM json_each('["{{name}}_open", "{{name}}_parked", "{{name}}_backfill", "{{name}}_finished"]')
         WHERE EXISTS (SELECT 1 FROM pragma_table_info(:name))
         UNION ALL
        SELECT 5, 'column {{name}}_waiting.' || value, value IN (SELECT name FROM pragma_table_xinfo(:name || '_waiting'))
          FROM json_each('["gate_id","gate_message_id","target_broker","lane","ordering_key","wake_at","reason","since"]')
         WHERE EXISTS (SELECT 1 FROM pragma_table_info(:name || '_waiting'))
         UNION ALL
        SELECT 6, 'index ' || value, value IN (SELECT name FROM pragma_index_list(:name || '_waiting'))
          FROM json_each('["{{name}}_waiting_key", "{{name}}_waiting_wake"]')
         WHERE EXISTS (SELECT 1 FROM pragma_table_info(:name || '_waiting')))
 WHERE NOT there
 ORDER BY kind, what
