-- One page of pending rows, deferred and scheduled ones included.
-- Plan: a range scan of each shard of {{name}}_open, of {{name}}_deferred and of {{name}}_scheduled_ids, backwards.
{{include part_list_begin}}
INSERT INTO @seen (place, id, status)
SELECT ROW_NUMBER() OVER (ORDER BY o.id DESC), o.id, o.status
  FROM (SELECT TOP (@scan + 1) entry.id, entry.status
          FROM (SELECT head.id, head.status
                  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
                 CROSS APPLY (SELECT TOP (@scan + 1) m.id, m.status
                                FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.id < @after_id
                                 AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
                               ORDER BY m.id DESC) AS head
                 UNION ALL
                SELECT deferred.id, CONVERT(nvarchar(16), NULL) COLLATE Latin1_General_100_BIN2
                  FROM (SELECT TOP (@scan + 1) m.id
                          FROM {{table}} AS m WITH (INDEX({{name}}_deferred), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.id < @after_id
                           AND m.deferred = 1 AND m.finished_at IS NULL AND m.available_at IS NULL
                         ORDER BY m.id DESC) AS deferred
                 UNION ALL
                SELECT scheduled.id, scheduled.status
                  FROM (SELECT TOP (@scan + 1) m.id, m.status
                          FROM {{table}} AS m WITH (INDEX({{name}}_scheduled_ids), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.id < @after_id AND m.available_at IS NOT NULL
                         ORDER BY m.id DESC) AS scheduled) AS entry
         ORDER BY entry.id DESC) AS o;
{{include part_list_end}}
