-- The first deferred rows of a key. @broker, @key, @most
-- Plan: one range scan of {{name}}_held.
SELECT id
  FROM {{table}} FORCE INDEX ({{name}}_held)
 WHERE held_key = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND deferred = TRUE
 ORDER BY id
 LIMIT @most
