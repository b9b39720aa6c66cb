-- One page of pending rows, deferred and scheduled ones included.
-- Plan, with settings_browse.sql: one range scan of {{name}}_deferred, of {{name}}_scheduled_ids and of {{name}}_open for each shard, backwards, merged, which stop where
-- the page is full.
{{include part_list_begin}}
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.deferred AND m.finished_at IS NULL AND m.shard >= 0 AND m.available_at IS NULL AND m.id < @after_id
 ORDER BY m.id DESC)
 UNION ALL
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.available_at IS NOT NULL AND m.status = 'pending' AND m.id < @after_id
 ORDER BY m.id DESC)
 UNION ALL
{{each shard part_list_shard}}
{{include part_list_by_id}}
