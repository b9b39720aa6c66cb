-- Remove an instance that stops. @instance_id
DELETE FROM {{table}}_instances WHERE instance_id = UNHEX(REPLACE(@instance_id, '-', ''))
