-- Of blocks, those before which a row of their key and shard is deferred. @ids (a JSON list) of blocks
-- Plan: the blocks by primary key, for each one probe of {{name}}_held. (MySQL would sort all rows of a key by their ids alone.)
SELECT held.id, held.ordering_key
  FROM (SELECT g.id, g.ordering_key
             , (SELECT m.id FROM {{table}} AS m FORCE INDEX ({{name}}_held)
                 WHERE m.held_key = UNHEX(SHA2(g.ordering_key, 256)) AND m.target_broker = g.target_broker AND m.shard = g.shard
                 ORDER BY m.held_key, m.target_broker, m.shard, m.id
                 LIMIT 1) AS first
          FROM {{ids @ids}} AS listed
         STRAIGHT_JOIN {{table}} AS g FORCE INDEX (PRIMARY) ON g.id = listed.item) AS held
 WHERE held.first < held.id
