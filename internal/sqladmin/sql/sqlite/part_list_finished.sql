-- The rows that were finished at the instant where the page before ended, and those before it.
-- Plan: two range scans of {{name}}_finished, whose entries end with the row's id, backwards.
{{include part_list}}
INDEXED BY {{name}}_finished WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at = @after AND m.id < @after_id
 UNION ALL
{{include part_list}}
INDEXED BY {{name}}_finished WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at < coalesce(@after, 9223372036854775807)
 ORDER BY finished_at DESC, id DESC
 LIMIT @scan + 1
