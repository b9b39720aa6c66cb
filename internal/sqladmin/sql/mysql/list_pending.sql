-- One page of pending rows, deferred and scheduled ones included.
-- Plan: a range scan of {{name}}_queue for each shard for deferred rows and for scheduled ones, backwards.
{{include part_list_begin}}
{{each shard part_list_shard}}
 UNION ALL
(SELECT id, NULL FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = 100 AND finished_at IS NULL AND id < @after_id
  ORDER BY id DESC
  LIMIT @scan_1)
 UNION ALL
(SELECT id, NULL FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = 99 AND finished_at IS NULL AND id < @after_id
  ORDER BY id DESC
  LIMIT @scan_1)
{{include part_list_end}}
