-- One page of failed rows, deferred or not.
-- Plan: a range scan of {{name}}_failing, backwards.
{{include part_list_begin}}
SELECT id, CAST(NULL AS DATETIME(6)) AS position FROM {{table}} FORCE INDEX ({{name}}_failing)
 WHERE failing = 1 AND target_broker = @broker AND id < @after_id
{{include part_list_end}}
