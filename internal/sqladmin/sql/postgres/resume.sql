-- End the pause of a broker. @broker
DELETE FROM {{table}}_pauses WHERE target_broker = @broker
