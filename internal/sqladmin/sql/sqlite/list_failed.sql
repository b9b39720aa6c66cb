-- One page of failed rows, deferred or not.
-- Plan: a range scan of {{name}}_failing, backwards.
{{include part_list}}
INDEXED BY {{name}}_failing WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL AND m.id < @after_id
 ORDER BY id DESC
 LIMIT @scan + 1
