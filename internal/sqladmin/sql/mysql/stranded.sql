-- Rows of a broker that may be stranded: with @heads those among the first 1,000 of each shard that are not deferred whose lease never
-- ends, and then @limit deferred rows, by id. The first column tells the latter. @broker, @heads, @after_id behind which deferred rows are read, @limit
-- Plan: range scans of {{name}}_queue that stop after so many rows.
SELECT found.page, m.id, {{uuid m.message_id}}, m.status, m.type, m.ordering_key, m.shard, m.deferred <> 0, {{micros m.created_at}}
  FROM (
{{each shard part_stranded_shard}}
         UNION ALL
        (SELECT id, TRUE FROM {{table}} FORCE INDEX ({{name}}_queue)
          WHERE target_broker = @broker AND queue = 100 AND finished_at IS NULL AND id > @after_id
          ORDER BY id
          LIMIT @limit)) AS found
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = found.id
