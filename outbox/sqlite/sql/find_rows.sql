-- Where find.sql looks: in the indexes that the statuses need, and in them at one broker's rows where it is named.
-- Named parameters: broker, statuses (JSON), open (whether a status that is not final is among them).
-- Plan: one range scan of each index; of {{name}}_finished one for each status.
        SELECT id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE {{broker}} finished_at IS NULL AND deferred = 0 AND :open
         UNION ALL
        SELECT id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
          FROM {{table}} INDEXED BY {{name}}_deferred_key
         WHERE {{broker}} finished_at IS NULL AND deferred = 1 AND :open
         UNION ALL
        SELECT id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
          FROM {{table}} INDEXED BY {{name}}_finished
         WHERE {{broker}} finished_at IS NOT NULL AND status IN (SELECT value FROM json_each(:statuses))
