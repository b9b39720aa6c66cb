-- The brokers that have open rows, deferred ones included, by name.
-- Plan: two probes of {{name}}_queue for each broker.
WITH RECURSIVE {{include part_all_brokers}}
SELECT broker
  FROM all_brokers
 WHERE broker IS NOT NULL AND EXISTS (SELECT 1 FROM {{table}} AS m FORCE INDEX ({{name}}_queue) WHERE m.target_broker = all_brokers.broker AND m.queue <= 100)
 ORDER BY broker
