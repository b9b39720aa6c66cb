-- End the pause of a broker. @broker
DELETE FROM {{table}}_pauses WITH (ROWLOCK) WHERE target_broker = @broker;
SELECT @@ROWCOUNT AS fanout_resumed;
