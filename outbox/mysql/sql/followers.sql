-- The first deferred rows of a key in a shard. @broker, @key, @shard, @most
-- Plan: a range scan of {{name}}_held.
SELECT id
  FROM {{table}} FORCE INDEX ({{name}}_held)
 WHERE held_key = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND shard = @shard
 ORDER BY id
 LIMIT @most
