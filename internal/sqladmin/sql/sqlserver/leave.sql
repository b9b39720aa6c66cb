-- Remove an instance that stops. @instance_id
DELETE FROM {{table}}_instances WHERE instance_id = CONVERT(uniqueidentifier, @instance_id);
SELECT 1 AS fanout_left;
