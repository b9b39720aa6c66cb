-- Remove an instance that stops. @instance_id
DELETE FROM {{table}}_instances WHERE instance_id = @instance_id::text::uuid
