-- Gates that must wait again go back to their place. Named parameters: ids (JSON), now. Their rows follow with
-- set_parked.sql.
UPDATE {{table}}_waiting AS w
   SET wake_at = max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0))
     , reason  = CASE WHEN coalesce(m.available_at, 0) > :now THEN 'scheduled' ELSE 'retry' END
  FROM {{table}} AS m
 WHERE w.gate_id IN (SELECT value FROM json_each(:ids)) AND m.id = w.gate_id
