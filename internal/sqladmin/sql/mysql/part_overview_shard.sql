SELECT COUNT(*) AS looked, SUM(status = 'pending') AS pending, SUM(status = 'processing') AS processing, MIN(created_at) AS oldest
  FROM (SELECT status, created_at FROM {{table}} FORCE INDEX ({{name}}_queue)
         WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL
         ORDER BY id
         LIMIT @limit_1) AS head
