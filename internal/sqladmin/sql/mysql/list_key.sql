-- One page of the pending rows of one ordering key, deferred or not.
-- Plan: a range scan of {{name}}_queue for each shard, and of {{name}}_held for each of the key's two shards, backwards.
{{include part_list_begin}}
{{each shard part_list_shard}}
 UNION ALL
(SELECT id, NULL FROM {{table}} FORCE INDEX ({{name}}_held)
  WHERE held_key = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND shard = ({{include part_key_shard}}) AND id < @after_id
  ORDER BY id DESC
  LIMIT @scan_1)
 UNION ALL
(SELECT id, NULL FROM {{table}} FORCE INDEX ({{name}}_held)
  WHERE held_key = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND shard = ({{include part_key_shard}}) + 4 AND id < @after_id
  ORDER BY id DESC
  LIMIT @scan_1)
{{include part_list_end}}
