-- Rows per broker and status, and the age in microseconds of the oldest open row of each. Open rows are read; of finished
-- ones, the many, only their entries in an index are counted, where vacuum has passed since they were finished.
-- Plan, with settings_count.sql: {{name}}_open, {{name}}_deferred_key and {{name}}_scheduled_ids; index-only scans of {{name}}_published and {{name}}_abandoned.
SELECT target_broker, status, count(*)
     , (extract(epoch FROM statement_timestamp() - min(created_at)) * 1000000)::bigint
  FROM {{table}}
 WHERE finished_at IS NULL AND NOT deferred AND available_at IS NULL
 GROUP BY target_broker, status
 UNION ALL
SELECT target_broker, status, count(*)
     , (extract(epoch FROM statement_timestamp() - min(created_at)) * 1000000)::bigint
  FROM {{table}}
 WHERE finished_at IS NULL AND deferred AND available_at IS NULL
 GROUP BY target_broker, status
 UNION ALL
SELECT target_broker, status, count(*)
     , (extract(epoch FROM statement_timestamp() - min(created_at)) * 1000000)::bigint
  FROM {{table}}
 WHERE available_at IS NOT NULL
 GROUP BY target_broker, status
 UNION ALL
SELECT target_broker, 'published', count(*), 0
  FROM {{table}}
 WHERE published_at IS NOT NULL
 GROUP BY target_broker
 UNION ALL
SELECT target_broker, 'abandoned', count(*), 0
  FROM {{table}}
 WHERE finished_at IS NOT NULL AND published_at IS NULL
 GROUP BY target_broker
