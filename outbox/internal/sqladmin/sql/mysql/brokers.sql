-- The first broker after @after that has rows, whatever their status.
-- Plan: one probe of {{name}}_queue. A recursive statement that hops reads the whole index: MIN() is a probe for constants alone.
SELECT target_broker
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker > @after
 ORDER BY target_broker
 LIMIT 1
