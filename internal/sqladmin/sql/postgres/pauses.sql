-- The brokers that are paused.
SELECT target_broker, since, paused_by, reason FROM {{table}}_pauses ORDER BY target_broker COLLATE "C"
