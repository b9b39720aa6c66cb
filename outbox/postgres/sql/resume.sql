-- End the pause of a broker. $1 broker
DELETE FROM {{table}}_pauses WHERE target_broker = $1
