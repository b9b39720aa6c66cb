-- The brokers that have rows, whatever their status, by name: by hopping from one to the next in each index.
-- @most names by each of them: whoever may write rows may invent as many as there are rows.
-- Plan: a probe of {{name}}_open, {{name}}_deferred_key, {{name}}_scheduled_ids and {{name}}_finished for each broker.
WITH RECURSIVE open (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_open WHERE finished_at IS NULL AND deferred = 0 AND available_at IS NULL
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_open
             WHERE m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL AND m.target_broker > open.broker)
      FROM open WHERE open.broker IS NOT NULL
     LIMIT @most
), deferred_brokers (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_deferred_key WHERE finished_at IS NULL AND deferred = 1
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_deferred_key
             WHERE m.finished_at IS NULL AND m.deferred = 1 AND m.target_broker > deferred_brokers.broker)
      FROM deferred_brokers WHERE deferred_brokers.broker IS NOT NULL
     LIMIT @most
), scheduled (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_scheduled_ids WHERE available_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_scheduled_ids
             WHERE m.available_at IS NOT NULL AND m.target_broker > scheduled.broker)
      FROM scheduled WHERE scheduled.broker IS NOT NULL
     LIMIT @most
), done (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_finished WHERE finished_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_finished
             WHERE m.finished_at IS NOT NULL AND m.target_broker > done.broker)
      FROM done WHERE done.broker IS NOT NULL
     LIMIT @most
)
SELECT broker FROM open WHERE broker IS NOT NULL
 UNION
SELECT broker FROM deferred_brokers WHERE broker IS NOT NULL
 UNION
SELECT broker FROM scheduled WHERE broker IS NOT NULL
 UNION
SELECT broker FROM done WHERE broker IS NOT NULL
 ORDER BY broker
