-- Where one broker stands: the counts of each status, those of open rows with whether there may be more; the deferred rows; the age of the
-- oldest open row in microseconds; when a row was published last; the last error, whose time stands in its JSON (texts that are no such
-- JSON come last). No more rows than @limit and one are read in each shard, among the deferred rows, the scheduled ones, among those that have an error, and
-- of each status that is final. What no operator has
-- acknowledged counts among the newest abandoned rows. @now, @broker, @limit
-- Plan: range scans of {{name}}_open, {{name}}_deferred_key, {{name}}_scheduled_ids, {{name}}_failing and {{name}}_finished that stop after so many rows.
WITH open AS MATERIALIZED (
    SELECT shard, status, created_at
      FROM (SELECT shard, status, created_at FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = @broker AND shard = 0 AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL ORDER BY id LIMIT @limit + 1)
     UNION ALL
    SELECT shard, status, created_at
      FROM (SELECT shard, status, created_at FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = @broker AND shard = 1 AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL ORDER BY id LIMIT @limit + 1)
     UNION ALL
    SELECT shard, status, created_at
      FROM (SELECT shard, status, created_at FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = @broker AND shard = 2 AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL ORDER BY id LIMIT @limit + 1)
), scheduled AS MATERIALIZED (
    SELECT status, available_at FROM {{table}} INDEXED BY {{name}}_scheduled_ids
     WHERE target_broker = @broker AND available_at IS NOT NULL
     ORDER BY id
     LIMIT @limit + 1
), deferred_rows AS MATERIALIZED (
    SELECT status, created_at FROM {{table}} INDEXED BY {{name}}_deferred_key
     WHERE target_broker = @broker AND deferred = 1 AND finished_at IS NULL AND available_at IS NULL
     LIMIT @limit + 1
), failing AS MATERIALIZED (
    SELECT id, status FROM {{table}} INDEXED BY {{name}}_failing
     WHERE target_broker = @broker AND last_error IS NOT NULL AND finished_at IS NULL
     ORDER BY id DESC
     LIMIT @limit + 1
), failed AS (
    SELECT m.id, m.last_error
      FROM (SELECT id FROM failing LIMIT 1000) AS f
     CROSS JOIN {{table}} AS m ON m.id = f.id
     UNION ALL
    SELECT id, last_error
      FROM (SELECT id, last_error FROM {{table}} INDEXED BY {{name}}_finished
             WHERE target_broker = @broker AND status = 'abandoned' AND finished_at IS NOT NULL
             ORDER BY finished_at DESC
             LIMIT 1000)
     WHERE last_error IS NOT NULL
), seen AS MATERIALIZED (
    SELECT (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM open GROUP BY shard)) AS fullest
         , (SELECT count(*) FROM deferred_rows) AS deferred
         , (SELECT count(*) FROM failing) AS failing
)
SELECT (SELECT count(*) FROM open WHERE status = 'pending') + (SELECT count(*) FROM deferred_rows WHERE status = 'pending')
       + (SELECT count(*) FROM scheduled WHERE status = 'pending')
     , seen.fullest > @limit OR seen.deferred > @limit OR (SELECT count(*) FROM scheduled) > @limit
     , (SELECT count(*) FROM open WHERE status = 'processing')
     , seen.fullest > @limit
     , (SELECT count(*) FROM failing WHERE status = 'failed')
     , seen.failing > @limit
     , (SELECT count(*) FROM (SELECT 1 FROM {{table}} INDEXED BY {{name}}_finished
                               WHERE target_broker = @broker AND status = 'published' AND finished_at IS NOT NULL LIMIT @limit + 1))
     , (SELECT count(*) FROM (SELECT 1 FROM {{table}} INDEXED BY {{name}}_finished
                               WHERE target_broker = @broker AND status = 'abandoned' AND finished_at IS NOT NULL LIMIT @limit + 1))
     , seen.deferred
     , coalesce(@now - (SELECT min(created_at) FROM (SELECT created_at FROM open UNION ALL SELECT created_at FROM deferred_rows)), 0)
     , (SELECT max(finished_at) FROM {{table}} INDEXED BY {{name}}_finished
         WHERE target_broker = @broker AND status = 'published' AND finished_at IS NOT NULL)
     , (SELECT last_error FROM failed
         ORDER BY CASE WHEN json_valid(last_error) THEN json_extract(last_error, '$.at') END DESC, id DESC -- NULL sorts lowest
         LIMIT 1)
     , (SELECT count(*) FROM scheduled WHERE available_at > @now)
     , (SELECT count(*)
          FROM (SELECT last_error FROM {{table}} INDEXED BY {{name}}_finished
                 WHERE target_broker = @broker AND status = 'abandoned' AND finished_at IS NOT NULL
                 ORDER BY finished_at DESC
                 LIMIT @limit + 1)
         WHERE substr(coalesce(last_error, ''), 1, 21) <> '{"acknowledged":true,')
  FROM seen
