-- One page of claimed rows. None of them is deferred.
-- Plan: a range scan of each shard of {{name}}_open, backwards.
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
                               ORDER BY m.id DESC) AS head) AS entry
         ORDER BY entry.id DESC) AS o;
{{include part_list_end}}
