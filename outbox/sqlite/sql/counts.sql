-- Rows per broker and status, and when the oldest row of each was created.
SELECT target_broker, status, count(*), min(created_at) FROM {{table}} GROUP BY target_broker, status
