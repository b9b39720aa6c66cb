-- The brokers that have rows, whatever their status, by hopping from one to the next in {{name}}_queue.
all_brokers (broker) AS (
    SELECT MIN(target_broker) FROM {{table}} FORCE INDEX ({{name}}_queue)
     UNION ALL
    SELECT (SELECT MIN(m.target_broker) FROM {{table}} AS m FORCE INDEX ({{name}}_queue) WHERE m.target_broker > all_brokers.broker)
      FROM all_brokers WHERE all_brokers.broker IS NOT NULL
)
