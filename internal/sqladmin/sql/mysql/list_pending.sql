-- One page of pending rows, deferred or not.
-- Plan: a range scan of {{name}}_queue for each shard and for deferred rows, backwards.
{{include part_list_begin}}
{{each shard part_list_shard}}
 UNION ALL
(SELECT id, NULL FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = 100 AND finished_at IS NULL AND id < @after_id
  ORDER BY id DESC
  LIMIT @scan_1)
{{include part_list_end}}
