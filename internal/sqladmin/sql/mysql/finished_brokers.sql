-- The broker, if it has finished rows. @broker
-- Plan: one probe of {{name}}_queue.
SELECT target_broker FROM {{table}} FORCE INDEX ({{name}}_queue) WHERE target_broker = @broker AND queue > 100 LIMIT 1
