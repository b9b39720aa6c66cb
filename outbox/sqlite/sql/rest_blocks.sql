-- Blocks that must wait again go back to their place. Named parameter: ids (JSON). Their rows follow with
-- set_deferred.sql.
UPDATE {{table}}_key_blocks AS w
   SET wake_at = coalesce(m.locked_until, 0)
  FROM {{table}} AS m
 WHERE w.block_id IN (SELECT value FROM json_each(:ids)) AND m.id = w.block_id
