-- Pause a broker, unless it is paused. @broker, @by whom, @reason
-- Plan: one row by primary key.
INSERT INTO {{table}}_pauses (target_broker, paused_by, reason) VALUES (@broker, @by, @reason) ON CONFLICT (target_broker) DO NOTHING
