-- One page of pending rows, deferred or not.
-- Plan: a range scan of {{name}}_open for each shard and of {{name}}_deferred, backwards.
{{each shard part_list_shard}}
 UNION ALL
{{include part_list}}
INDEXED BY {{name}}_deferred WHERE m.target_broker = @broker AND m.deferred = 1 AND m.finished_at IS NULL AND m.id < @after_id
 ORDER BY id DESC
 LIMIT @scan + 1
