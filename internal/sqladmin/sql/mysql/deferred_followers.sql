-- How many deferred rows stand behind each of some rows that block their keys? Answers with the places of these, from 0 on. No count goes beyond
-- @max_count and one. @broker, @blockers (a JSON list of id, key, shard)
-- Plan: for each key a range scan of {{name}}_held that ends at the row behind the last one that counts, which another one has found.
SELECT held.place - 1
     , (SELECT COUNT(*)
          FROM {{table}} AS m FORCE INDEX ({{name}}_held)
         WHERE m.held_key = UNHEX(SHA2(held.ordering_key, 256)) AND m.target_broker = @broker AND m.shard = held.shard AND m.id > held.id
           AND m.id <= COALESCE((SELECT last.id
                                   FROM {{table}} AS last FORCE INDEX ({{name}}_held)
                                  WHERE last.held_key = UNHEX(SHA2(held.ordering_key, 256)) AND last.target_broker = @broker AND last.shard = held.shard AND last.id > held.id
                                  ORDER BY last.held_key, last.target_broker, last.shard, last.id -- as MySQL needs it to stop
                                  LIMIT 1 OFFSET @max_count), 9223372036854775807))
  FROM JSON_TABLE(@blockers, '$[*]' COLUMNS (place FOR ORDINALITY, id BIGINT PATH '$.id', ordering_key LONGTEXT PATH '$.key', shard INT PATH '$.shard')) AS held
