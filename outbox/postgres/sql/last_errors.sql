-- The last error of each broker, among the rows that are not published. The time of an error stands in its JSON; texts
-- that are no such JSON come last.
SELECT DISTINCT ON (target_broker) target_broker, last_error
  FROM {{table}}
 WHERE last_error IS NOT NULL AND status <> 'published'
 ORDER BY target_broker, substring(last_error FROM '"at":"([^"]*)"') COLLATE "C" DESC NULLS LAST, id DESC
