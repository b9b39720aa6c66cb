-- The open rows of one shard, from the last one on that is claimed: that is looked for among the first 20,000, and claims look no further than
-- 16 batches.
(SELECT id, CAST(NULL AS DATETIME(6)) AS position FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL AND id < @after_id
    AND id <= (SELECT MAX(id)
                 FROM (SELECT id, status FROM {{table}} FORCE INDEX ({{name}}_queue)
                        WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL
                        ORDER BY id
                        LIMIT 20000) AS head
                WHERE status = 'processing')
  ORDER BY id DESC
  LIMIT @scan_1)
