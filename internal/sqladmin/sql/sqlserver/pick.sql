-- What is decided by of the rows that an operator is about to change, but for those that a worker has claimed under a lease that ends. It takes no locks: whoever changes the rows
-- compares them with this. @ids a JSON list
-- Plan: one seek of {{name}}_pkey per row.
SET @now = SYSUTCDATETIME();
SELECT m.id AS fanout_picked, N'' AS message_id, m.target_broker, COALESCE(m.ordering_key, N'') AS ordering_key, m.shard, m.status
     , CONVERT(bit, CASE WHEN m.status <> N'processing' AND (m.locked_until > @now OR m.available_at > @now) THEN 1 ELSE 0 END) AS waits
     , m.deferred
  FROM (SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$')) AS l
 INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = l.id
 WHERE m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31'
 ORDER BY m.id;
