-- The brokers that have rows, whatever their status, by name.
-- Plan: a probe of {{name}}_queue for each broker.
WITH RECURSIVE {{include part_all_brokers}}
SELECT broker FROM all_brokers WHERE broker IS NOT NULL ORDER BY broker
