-- One page of pending rows, deferred and scheduled ones included.
-- Plan: a range scan of {{name}}_open for each shard, of {{name}}_deferred and of {{name}}_scheduled_ids, backwards.
{{each shard part_list_shard}}
 UNION ALL
{{include part_list}}
INDEXED BY {{name}}_deferred WHERE m.target_broker = @broker AND m.deferred = 1 AND m.finished_at IS NULL AND m.available_at IS NULL AND m.id < @after_id
 UNION ALL
{{include part_list}}
INDEXED BY {{name}}_scheduled_ids WHERE m.target_broker = @broker AND m.available_at IS NOT NULL AND m.id < @after_id
 ORDER BY id DESC
 LIMIT @scan + 1
