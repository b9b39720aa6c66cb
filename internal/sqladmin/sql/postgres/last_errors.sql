-- The last error of each broker, among the rows that are not published. The time of an error stands in its JSON; texts
-- that are no such JSON come last.
-- Plan, with settings_count.sql: {{name}}_failing and {{name}}_abandoned.
SELECT DISTINCT ON (target_broker) target_broker, last_error
  FROM (SELECT target_broker, last_error, id FROM {{table}} WHERE finished_at IS NULL AND last_error IS NOT NULL
         UNION ALL
        SELECT target_broker, last_error, id FROM {{table}} WHERE finished_at IS NOT NULL AND published_at IS NULL AND last_error IS NOT NULL) AS failed
 ORDER BY target_broker, substring(last_error FROM '"at":"([^"]*)"') COLLATE "C" DESC NULLS LAST, id DESC
