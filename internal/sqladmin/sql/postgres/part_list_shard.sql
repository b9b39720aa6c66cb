-- The open rows of one shard. Range scan of {{name}}_open, backwards.
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.shard = {{shard}} AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND m.id < @after_id
 ORDER BY m.id DESC)
