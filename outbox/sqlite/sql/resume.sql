-- End the pause of a broker. Named parameter: broker.
DELETE FROM {{table}}_pauses WHERE target_broker = :broker
