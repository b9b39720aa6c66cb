-- Remove an instance that stops. Named parameter: id.
DELETE FROM {{table}}_instances WHERE instance_id = :id
