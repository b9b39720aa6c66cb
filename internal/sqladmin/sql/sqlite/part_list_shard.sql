-- The open rows of one shard.
{{include part_list}}
INDEXED BY {{name}}_open WHERE m.target_broker = @broker AND m.shard = {{shard}} AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL AND m.id < @after_id
