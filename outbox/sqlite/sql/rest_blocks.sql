-- Blocks that must wait again go back to their place. Named parameters: ids (JSON), now. Their rows follow with
-- set_deferred.sql.
UPDATE {{table}}_key_blocks AS w
   SET wake_at = max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0))
     , reason  = CASE WHEN coalesce(m.available_at, 0) > :now THEN 'scheduled' ELSE 'backoff' END
  FROM {{table}} AS m
 WHERE w.block_id IN (SELECT value FROM json_each(:ids)) AND m.id = w.block_id
