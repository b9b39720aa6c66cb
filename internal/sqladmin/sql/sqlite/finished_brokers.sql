-- The brokers that have finished rows, by hopping from one to the next in {{name}}_finished. @most names
WITH RECURSIVE hop (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_finished WHERE finished_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_finished
             WHERE m.finished_at IS NOT NULL AND m.target_broker > hop.broker)
      FROM hop WHERE hop.broker IS NOT NULL
     LIMIT @most
)
SELECT broker FROM hop WHERE broker IS NOT NULL
