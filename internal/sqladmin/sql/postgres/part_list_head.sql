-- The first 4,000 open rows of one shard, of which alone rows are claimed. Range scan of {{name}}_open, backwards, from their end.
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.shard = {{shard}} AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND m.id < @after_id
   AND m.id <= coalesce((SELECT end_of.id
                           FROM {{table}} AS end_of
                          WHERE end_of.target_broker = @broker AND end_of.shard = {{shard}} AND end_of.finished_at IS NULL AND NOT end_of.deferred AND end_of.available_at IS NULL
                          ORDER BY end_of.id
                         OFFSET 4000 LIMIT 1), 9223372036854775807)
 ORDER BY m.id DESC)
