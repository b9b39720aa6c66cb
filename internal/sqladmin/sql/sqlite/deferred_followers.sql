-- How many deferred rows stand behind each of some rows that block their keys? Answers with the places of these, from 0 on. No count goes beyond
-- @max_count and one. @broker, @blockers (a JSON list of id, key, shard)
-- Plan: for each key one range scan of {{name}}_deferred_key that stops after so many rows.
SELECT held.key
     , (SELECT count(*)
          FROM (SELECT 1 FROM {{table}} AS m INDEXED BY {{name}}_deferred_key
                 WHERE m.target_broker = @broker AND m.ordering_key = json_extract(held.value, '$.key') AND m.shard = json_extract(held.value, '$.shard')
                   AND m.id > json_extract(held.value, '$.id') AND m.deferred = 1 AND m.finished_at IS NULL
                 LIMIT @max_count + 1))
  FROM json_each(@blockers) AS held
