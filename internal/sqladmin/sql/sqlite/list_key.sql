-- One page of the pending rows of one ordering key, deferred or not. The last shard has no keys.
-- Plan: a range scan of {{name}}_open for each shard, and of {{name}}_deferred_key for each but the last, backwards.
{{each shard part_list_shard}}
 UNION ALL
{{include part_list}}
INDEXED BY {{name}}_deferred_key WHERE m.target_broker = @broker AND m.ordering_key = @key AND m.shard = 0 AND m.deferred = 1 AND m.finished_at IS NULL
   AND m.id < @after_id
 UNION ALL
{{include part_list}}
INDEXED BY {{name}}_deferred_key WHERE m.target_broker = @broker AND m.ordering_key = @key AND m.shard = 1 AND m.deferred = 1 AND m.finished_at IS NULL
   AND m.id < @after_id
 ORDER BY id DESC
 LIMIT @scan + 1
