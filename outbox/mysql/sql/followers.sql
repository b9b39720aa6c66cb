-- The first deferred rows of a key. @broker, @key, @most
-- Plan: a range scan of {{name}}_held for each of the key's two shards.
(SELECT id
   FROM {{table}} FORCE INDEX ({{name}}_held)
  WHERE held_key = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND shard = ({{include part_key_shard}}) AND deferred = TRUE
  ORDER BY id
  LIMIT @most)
 UNION ALL
(SELECT id
   FROM {{table}} FORCE INDEX ({{name}}_held)
  WHERE held_key = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND shard = ({{include part_key_shard}}) + 4 AND deferred = TRUE
  ORDER BY id
  LIMIT @most)
 ORDER BY id
 LIMIT @most
