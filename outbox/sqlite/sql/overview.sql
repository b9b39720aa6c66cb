-- Where one broker stands. No more rows than so many are looked at in each shard, among the deferred rows, among those that are failing, and of
-- each status that is final. Named parameters: broker, rows.
-- Answers with the pending and the processing rows of the shards, and the most that a shard had; the pending ones of the deferred rows, and all
-- of these; the failed ones of those that are failing, and all of these; the published, the abandoned; when the oldest open row was created;
-- when a row was published last; the last error. The time of an error stands in its JSON; texts that are no such JSON come last.
-- Plan: range scans of {{name}}_open, {{name}}_deferred_key, {{name}}_failing and {{name}}_finished that stop after so many rows.
WITH open AS MATERIALIZED (
    SELECT shard, status, created_at
      FROM (SELECT shard, status, created_at FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = :broker AND shard = 0 AND finished_at IS NULL AND deferred = 0 ORDER BY id LIMIT :rows)
     UNION ALL
    SELECT shard, status, created_at
      FROM (SELECT shard, status, created_at FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = :broker AND shard = 1 AND finished_at IS NULL AND deferred = 0 ORDER BY id LIMIT :rows)
     UNION ALL
    SELECT shard, status, created_at
      FROM (SELECT shard, status, created_at FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = :broker AND shard = 2 AND finished_at IS NULL AND deferred = 0 ORDER BY id LIMIT :rows)
), aside AS MATERIALIZED (
    SELECT status, created_at FROM {{table}} INDEXED BY {{name}}_deferred_key
     WHERE target_broker = :broker AND deferred = 1 AND finished_at IS NULL
     LIMIT :rows
), failing AS MATERIALIZED (
    SELECT id, status FROM {{table}} INDEXED BY {{name}}_failing
     WHERE target_broker = :broker AND last_error IS NOT NULL AND finished_at IS NULL
     ORDER BY id DESC
     LIMIT :rows
), failed AS (
    SELECT m.id, m.last_error
      FROM (SELECT id FROM failing LIMIT 1000) AS f
     CROSS JOIN {{table}} AS m ON m.id = f.id
     UNION ALL
    SELECT id, last_error
      FROM (SELECT id, last_error FROM {{table}} INDEXED BY {{name}}_finished
             WHERE target_broker = :broker AND status = 'abandoned' AND finished_at IS NOT NULL
             ORDER BY finished_at DESC
             LIMIT 1000)
     WHERE last_error IS NOT NULL
)
SELECT (SELECT count(*) FROM open WHERE status = 'pending')
     , (SELECT count(*) FROM open WHERE status = 'processing')
     , (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM open GROUP BY shard))
     , (SELECT count(*) FROM aside WHERE status = 'pending')
     , (SELECT count(*) FROM aside)
     , (SELECT count(*) FROM failing WHERE status = 'failed')
     , (SELECT count(*) FROM failing)
     , (SELECT count(*) FROM (SELECT 1 FROM {{table}} INDEXED BY {{name}}_finished
                               WHERE target_broker = :broker AND status = 'published' AND finished_at IS NOT NULL LIMIT :rows))
     , (SELECT count(*) FROM (SELECT 1 FROM {{table}} INDEXED BY {{name}}_finished
                               WHERE target_broker = :broker AND status = 'abandoned' AND finished_at IS NOT NULL LIMIT :rows))
     , (SELECT min(created_at) FROM (SELECT created_at FROM open UNION ALL SELECT created_at FROM aside))
     , (SELECT max(finished_at) FROM {{table}} INDEXED BY {{name}}_finished
         WHERE target_broker = :broker AND status = 'published' AND finished_at IS NOT NULL)
     , (SELECT last_error FROM failed
         ORDER BY CASE WHEN json_valid(last_error) THEN json_extract(last_error, '$.at') END DESC, id DESC -- NULL sorts lowest
         LIMIT 1)
