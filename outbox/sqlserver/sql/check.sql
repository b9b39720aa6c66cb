-- What this version needs and the database has not. OPENJSON is one of these things itself: below compatibility level 130
-- this text is a syntax error.
SELECT what AS fanout_missing
  FROM (SELECT 1 AS kind, CONCAT(N'table ', needed.name) AS what
          FROM (VALUES (N'{{table}}'), (N'{{table}}_waiting'), (N'{{table}}_instances')) AS needed (name)
         WHERE OBJECT_ID(needed.name) IS NULL
         UNION ALL
        SELECT 2, CONCAT(N'column ', needed.name)
          FROM OPENJSON(N'["id", "created_at", "available_at", "expires_at", "locked_until", "published_at", "finished_at",
                           "lock_token", "attempts", "crashes", "priority", "lane", "parked", "isolated", "message_id",
                           "status", "locked_by", "target_broker", "stream", "type", "ordering_key", "content_type",
                           "aggregate_type", "aggregate_id", "correlation_id", "causation_id", "tenant_id",
                           "broker_message_id", "headers", "last_error", "payload", "key_hash"]')
               WITH (name nvarchar(128) '$') AS needed
         WHERE OBJECT_ID(N'{{table}}') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.columns AS c
                            WHERE c.object_id = OBJECT_ID(N'{{table}}')
                              AND c.name = needed.name COLLATE Latin1_General_100_BIN2)
         UNION ALL
        SELECT 3, CONCAT(N'column {{name}}_waiting.', needed.name)
          FROM OPENJSON(N'["target_broker", "lane", "ordering_key", "gate_id", "gate_message_id", "wake_at", "reason", "since",
                           "key_hash"]')
               WITH (name nvarchar(128) '$') AS needed
         WHERE OBJECT_ID(N'{{table}}_waiting') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.columns AS c
                            WHERE c.object_id = OBJECT_ID(N'{{table}}_waiting')
                              AND c.name = needed.name COLLATE Latin1_General_100_BIN2)
         UNION ALL
        SELECT 4, CONCAT(N'column {{name}}_instances.', needed.name)
          FROM OPENJSON(N'["instance_id", "name", "host", "pid", "version", "started_at", "seen_at", "work"]')
               WITH (name nvarchar(128) '$') AS needed
         WHERE OBJECT_ID(N'{{table}}_instances') IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.columns AS c
                            WHERE c.object_id = OBJECT_ID(N'{{table}}_instances')
                              AND c.name = needed.name COLLATE Latin1_General_100_BIN2)
         UNION ALL
        SELECT 5, CONCAT(N'index ', needed.name)
          FROM (VALUES (N'{{table}}', N'{{name}}_pkey'), (N'{{table}}', N'{{name}}_once'), (N'{{table}}', N'{{name}}_open')
                     , (N'{{table}}', N'{{name}}_parked'), (N'{{table}}', N'{{name}}_backfill')
                     , (N'{{table}}', N'{{name}}_finished')
                     , (N'{{table}}_waiting', N'{{name}}_waiting_pkey'), (N'{{table}}_waiting', N'{{name}}_waiting_key')
                     , (N'{{table}}_waiting', N'{{name}}_waiting_wake')
                     , (N'{{table}}_instances', N'{{name}}_instances_pkey')) AS needed (owner, name)
         WHERE OBJECT_ID(needed.owner) IS NOT NULL
           AND NOT EXISTS (SELECT 1
                             FROM sys.indexes AS i
                            WHERE i.object_id = OBJECT_ID(needed.owner) AND i.name = needed.name AND i.is_disabled = 0)
       ) AS missing
 ORDER BY kind, what;
