(SELECT head.id, FALSE AS page
   FROM (SELECT id, locked_until FROM {{table}} FORCE INDEX ({{name}}_queue)
          WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL AND @heads
          ORDER BY id
          LIMIT 1000) AS head
  WHERE head.locked_until >= '9999-12-31')
