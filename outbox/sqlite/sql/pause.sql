-- Pause a broker, unless it is paused. Named parameters: broker, by, reason, now.
INSERT INTO {{table}}_pauses (target_broker, since, paused_by, reason) VALUES (:broker, :now, :by, :reason)
    ON CONFLICT (target_broker) DO NOTHING
