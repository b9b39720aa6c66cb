-- Rows of a broker that may be stranded: with @heads those among the first 1,000 of each shard that are not deferred whose lease never
-- ends, and then @limit deferred rows, by id. The first column tells the latter. @broker, @heads, @after_id behind which deferred rows are read, @limit
-- Rows that another transaction is writing are passed over.
-- Plan: a bounded range scan of each shard of {{name}}_open, covered, and one of {{name}}_deferred; for each row found a seek of {{name}}_pkey.
SELECT CONVERT(bit, found.page) AS fanout_page, m.id, LOWER(CONVERT(char(36), m.message_id)) AS message_id, m.status, m.type, m.ordering_key, m.shard, m.deferred
     , m.created_at
  FROM (SELECT head.id, 0 AS page
          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
         CROSS APPLY (SELECT TOP (1000) o.id, o.locked_until
                        FROM {{table}} AS o WITH (INDEX({{name}}_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                       WHERE o.target_broker = @broker AND o.shard = shards.shard AND o.finished_at IS NULL AND o.deferred = 0 AND o.available_at IS NULL AND @heads = 1
                       ORDER BY o.id) AS head
         WHERE head.locked_until >= '9999-12-31'
        UNION ALL
        SELECT deferred.id, 1
          FROM (SELECT TOP (@limit) d.id
                  FROM {{table}} AS d WITH (INDEX({{name}}_deferred), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE d.target_broker = @broker AND d.deferred = 1 AND d.finished_at IS NULL AND d.id > @after_id
                 ORDER BY d.id) AS deferred) AS found
 INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = found.id;
