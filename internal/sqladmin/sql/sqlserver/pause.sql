-- Pause a broker, unless it is paused. @broker, @by whom, @reason
-- Plan: one seek of {{name}}_pauses_pkey. HOLDLOCK: of two who pause at once, one waits and finds it done.
INSERT INTO {{table}}_pauses (target_broker, paused_by, reason)
SELECT @broker, @by, @reason
 WHERE NOT EXISTS (SELECT 1 FROM {{table}}_pauses WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE target_broker = @broker);
SELECT @@ROWCOUNT AS fanout_paused;
