-- Remove an instance that stops. $1 instance id
DELETE FROM {{table}}_instances WHERE instance_id = $1::text::uuid
