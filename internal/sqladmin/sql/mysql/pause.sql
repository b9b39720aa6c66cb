-- Pause a broker, unless it is paused. Of two who do so at once, one ends in error 1062, and finds it done when it tries again.
-- @broker, @by whom, @reason
-- Plan: the pause by primary key.
INSERT INTO {{table}}_pauses (target_broker, paused_by, reason)
SELECT @broker, @by, @reason
  FROM (SELECT 1) AS one
 WHERE NOT EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = @broker)
