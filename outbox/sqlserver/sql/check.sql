-- What this version needs and the database has not. OPENJSON is one of these things itself: below compatibility level 130
-- this text is a syntax error.
SELECT what AS fanout_missing
  FROM (SELECT 1 AS kind, N'table {{table}}' AS what
         WHERE OBJECT_ID(N'{{table}}') IS NULL
         UNION ALL
        SELECT 2, CONCAT(N'column ', needed.name)
          FROM OPENJSON(N'["id", "created_at", "available_at", "expires_at", "locked_until", "published_at", "finished_at",
                           "lock_token", "attempts", "crashes", "priority", "lane", "parked", "isolated", "message_id",
                           "status", "locked_by", "target_broker", "stream", "type", "ordering_key", "content_type",
                           "aggregate_type", "aggregate_id", "correlation_id", "causation_id", "tenant_id",
                           "broker_message_id", "headers", "last_error", "payload"]')
               WITH (name nvarchar(128) '$') AS needed
         WHERE OBJECT_ID(N'{{table}}') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.columns AS c
                            WHERE c.object_id = OBJECT_ID(N'{{table}}')
                              AND c.name = needed.name COLLATE Latin1_General_100_BIN2)
         UNION ALL
        SELECT 3, CONCAT(N'index ', needed.name)
          FROM (VALUES (N'{{name}}_pkey'), (N'{{name}}_once'), (N'{{name}}_open'), (N'{{name}}_finished')) AS needed (name)
         WHERE OBJECT_ID(N'{{table}}') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.indexes AS i
                            WHERE i.object_id = OBJECT_ID(N'{{table}}') AND i.name = needed.name AND i.is_disabled = 0)
       ) AS missing
 ORDER BY kind, what;
