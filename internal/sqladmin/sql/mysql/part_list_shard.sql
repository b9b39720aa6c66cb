(SELECT id, CAST(NULL AS DATETIME(6)) AS position FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL AND id < @after_id
  ORDER BY id DESC
  LIMIT @scan_1)
