-- One page of failed rows, deferred or not.
-- Plan, with settings_browse.sql: one range scan of {{name}}_failing, backwards.
{{include part_list_begin}}
SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL AND m.id < @after_id
{{include part_list_by_id}}
