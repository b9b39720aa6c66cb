SELECT COUNT(*) AS looked, SUM(status = 'pending') AS pending, SUM(status = 'processing') AS processing, MIN(created_at) AS oldest
     , SUM(status <> 'processing' AND available_at > UTC_TIMESTAMP(6)) AS scheduled
  FROM (SELECT status, created_at, available_at FROM {{table}} FORCE INDEX ({{name}}_queue)
         WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL
         ORDER BY id
         LIMIT @limit_1) AS head
