-- On how many of these rows do two expressions of a generated column differ? One stands in the migrations, the other in the
-- catalog, where the server has put it in words of its own; both come in place of the names in braces. The rows have the
-- columns from which ours are computed: keys and none, for all shards, with every kind of priority, status and error.
SELECT COUNT(*)
  FROM (SELECT rows_of.*, {{live}} AS live, {{want}} AS want
          FROM (SELECT k.ordering_key, UNHEX(i.id) AS message_id, p.priority, p.shard, s.status, s.finished_at, s.deferred, s.last_error
                  FROM (SELECT CAST(NULL AS CHAR) AS ordering_key UNION ALL SELECT 'order-1' UNION ALL SELECT 'order-2' UNION ALL SELECT 'order-3'
                        UNION ALL SELECT 'order-4' UNION ALL SELECT 'order-5' UNION ALL SELECT 'Order-1' UNION ALL SELECT 'order-1 '
                        UNION ALL SELECT 'Größe' UNION ALL SELECT '注文') AS k
                 CROSS JOIN (SELECT '01A1FD9DD6B87ECA9AFCE5AA4ABA856A' AS id UNION ALL SELECT '6F9619FF8B86D011B42D00C04FC964FF'
                             UNION ALL SELECT '00000000000000000000000000000000') AS i
                 CROSS JOIN (SELECT -1 AS priority, 5 AS shard UNION ALL SELECT 0, 2 UNION ALL SELECT 1, 9) AS p
                 CROSS JOIN (SELECT 'pending' AS status, CAST(NULL AS DATETIME(6)) AS finished_at, 0 AS deferred, CAST(NULL AS CHAR) AS last_error
                             UNION ALL SELECT 'failed', NULL, 1, '{}' UNION ALL SELECT 'published', '2026-01-02', 0, '{}'
                             UNION ALL SELECT 'abandoned', '2026-01-02', 0, NULL) AS s) AS rows_of) AS computed
 WHERE NOT (live <=> want)
