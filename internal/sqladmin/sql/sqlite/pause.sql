-- Pause a broker, unless it is paused. @now, @broker, @by whom, @reason
INSERT INTO {{table}}_pauses (target_broker, since, paused_by, reason) VALUES (@broker, @now, @by, @reason)
    ON CONFLICT (target_broker) DO NOTHING
