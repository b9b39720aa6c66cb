-- The error of the youngest row of each broker that has one and is not published.
SELECT target_broker, last_error, max(id) FROM {{table}}
 WHERE last_error IS NOT NULL AND status <> 'published'
 GROUP BY target_broker
