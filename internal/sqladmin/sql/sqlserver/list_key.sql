-- One page of the pending rows of one ordering key, of all its shards, deferred or not.
-- Plan: a range scan of each shard of {{name}}_open, and of the key in it of {{name}}_deferred_key, backwards.
{{include part_list_begin}}
INSERT INTO @seen (place, id, status)
SELECT ROW_NUMBER() OVER (ORDER BY o.id DESC), o.id, o.status
  FROM (SELECT TOP (@scan + 1) entry.id, entry.status
          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
         CROSS APPLY (SELECT head.id, head.status
                        FROM (SELECT TOP (@scan + 1) m.id, m.status
                                FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = @broker AND m.shard = shards.shard AND m.id < @after_id
                                 AND m.finished_at IS NULL AND m.deferred = 0
                               ORDER BY m.id DESC) AS head
                       UNION ALL
                      SELECT deferred_rows.id, CONVERT(nvarchar(16), NULL) COLLATE Latin1_General_100_BIN2
                        FROM (SELECT TOP (@scan + 1) m.id
                                FROM {{table}} AS m WITH (INDEX({{name}}_deferred_key), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                               WHERE m.target_broker = @broker AND m.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', CONVERT(nvarchar(1024), @key)))
                                 AND m.shard = shards.shard AND m.id < @after_id AND m.deferred = 1 AND m.finished_at IS NULL
                               ORDER BY m.id DESC) AS deferred_rows) AS entry
         ORDER BY entry.id DESC) AS o;
{{include part_list_end}}
