-- The last broker between @after and @before that has rows, whatever their status. From behind, since published rows leave entries where the
-- rows of a broker begin, and InnoDB goes on behind @before as long as it meets nothing else.
-- Plan: one probe of {{name}}_queue. A recursive statement that hops reads the whole index: MIN() is a probe for constants alone.
SELECT target_broker
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker > @after AND target_broker < @before
 ORDER BY target_broker DESC
 LIMIT 1
