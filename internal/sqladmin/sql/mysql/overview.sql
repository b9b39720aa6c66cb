-- Where one broker stands: the counts of each status, those of open rows with whether there may be more; the deferred rows; the age of the
-- oldest open row in microseconds; when a row was published last; the last error, whose time stands in its JSON (texts that are no such
-- JSON come last). No more rows than @limit_1 (one more than @limit) are read in each shard, among the deferred rows, the scheduled ones, those that have an
-- error, and of each status that is final. What no operator has
-- acknowledged counts among the newest abandoned rows. @broker, @limit
-- Plan: range scans of {{name}}_queue and {{name}}_failing that stop after so many rows.
WITH heads AS (
{{each shard part_overview_shard}}
), deferred_rows AS (
    SELECT status, created_at FROM {{table}} FORCE INDEX ({{name}}_queue)
     WHERE target_broker = @broker AND queue = 100 AND finished_at IS NULL
     LIMIT @limit_1
), scheduled_rows AS (
    SELECT status, available_at FROM {{table}} FORCE INDEX ({{name}}_queue)
     WHERE target_broker = @broker AND queue = 99 AND finished_at IS NULL
     LIMIT @limit_1
), failing_rows AS (
    SELECT id, status, last_error FROM {{table}} FORCE INDEX ({{name}}_failing)
     WHERE failing = 1 AND target_broker = @broker
     ORDER BY id DESC
     LIMIT @limit_1
), opened AS (
    SELECT COALESCE(SUM(pending), 0) AS pending, COALESCE(SUM(processing), 0) AS processing, COALESCE(MAX(looked), 0) AS fullest, MIN(oldest) AS oldest FROM heads
), waiting AS (
    SELECT COUNT(*) AS looked, COALESCE(SUM(status = 'pending'), 0) AS pending, MIN(created_at) AS oldest FROM deferred_rows
), scheduled AS (
    SELECT COUNT(*) AS looked, COALESCE(SUM(status = 'pending'), 0) AS pending, COALESCE(SUM(available_at > UTC_TIMESTAMP(6)), 0) AS ahead FROM scheduled_rows
), broken AS (
    SELECT COUNT(*) AS looked, COALESCE(SUM(status = 'failed'), 0) AS failed FROM failing_rows
)
SELECT CAST(opened.pending + waiting.pending + scheduled.pending AS SIGNED)
     , opened.fullest > @limit OR waiting.looked > @limit OR scheduled.looked > @limit
     , CAST(opened.processing AS SIGNED)
     , opened.fullest > @limit
     , CAST(broken.failed AS SIGNED)
     , broken.looked > @limit
     , (SELECT COUNT(*) FROM (SELECT id FROM {{table}} FORCE INDEX ({{name}}_queue) WHERE target_broker = @broker AND queue = 101 LIMIT @limit_1) AS published)
     , (SELECT COUNT(*) FROM (SELECT id FROM {{table}} FORCE INDEX ({{name}}_queue) WHERE target_broker = @broker AND queue = 102 LIMIT @limit_1) AS abandoned)
     , waiting.looked
     , COALESCE(TIMESTAMPDIFF(MICROSECOND, LEAST(COALESCE(opened.oldest, waiting.oldest), COALESCE(waiting.oldest, opened.oldest)), UTC_TIMESTAMP(6)), 0)
     , (SELECT {{micros finished_at}} FROM {{table}} FORCE INDEX ({{name}}_queue)
         WHERE target_broker = @broker AND queue = 101 ORDER BY finished_at DESC LIMIT 1)
     , (SELECT last_error
          FROM ((SELECT id, last_error FROM failing_rows ORDER BY id DESC LIMIT 1000)
                 UNION ALL
                (SELECT id, last_error FROM {{table}} FORCE INDEX ({{name}}_queue)
                  WHERE target_broker = @broker AND queue = 102 ORDER BY finished_at DESC, id DESC LIMIT 1000)) AS failed
         WHERE last_error IS NOT NULL
         ORDER BY CASE WHEN JSON_VALID(last_error) THEN JSON_UNQUOTE(JSON_EXTRACT(last_error, '$.at')) END DESC, id DESC -- NULL sorts lowest
         LIMIT 1)
     , CAST(scheduled.ahead AS SIGNED)
     , (SELECT COUNT(*)
          FROM (SELECT last_error FROM {{table}} FORCE INDEX ({{name}}_queue)
                 WHERE target_broker = @broker AND queue = 102 ORDER BY finished_at DESC, id DESC LIMIT @limit_1) AS newest
         WHERE last_error IS NULL OR LEFT(last_error, 21) <> '{"acknowledged":true,')
  FROM opened
 CROSS JOIN waiting
 CROSS JOIN scheduled
 CROSS JOIN broken
