-- The first broker between @after and @before that has rows, whatever their status, where brokers.sql has found that there is one.
-- Plan: one probe of {{name}}_queue.
SELECT target_broker
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker > @after AND target_broker < @before
 ORDER BY target_broker
 LIMIT 1
