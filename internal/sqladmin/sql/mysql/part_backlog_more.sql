(SELECT id FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL AND id >= @floor_{{shard}}
  ORDER BY id
  LIMIT 1 OFFSET @look)
