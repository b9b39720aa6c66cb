-- Pause a broker, unless it is paused. $1 broker, $2 by whom, $3 why
-- Plan: one row by primary key.
INSERT INTO {{table}}_pauses (target_broker, paused_by, reason) VALUES ($1, $2, $3) ON CONFLICT (target_broker) DO NOTHING
