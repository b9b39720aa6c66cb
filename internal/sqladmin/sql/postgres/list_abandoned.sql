-- One page of abandoned rows, the last first. Any number of rows can end at the same instant: they are distinguished by id.
-- Plan, with settings_browse.sql: one range scan of {{name}}_abandoned, backwards, which ends where the page is full.
{{include part_list_begin}}
SELECT {{include part_columns}}
     , m.finished_at AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.finished_at IS NOT NULL AND m.published_at IS NULL AND (m.finished_at, m.id) < (coalesce(@after::timestamptz, 'infinity'), @after_id)
   AND m.finished_at < 'infinity' AND m.finished_at > '-infinity'
) AS rows ORDER BY position DESC, id DESC LIMIT @scan::bigint + 1) AS m
        WINDOW place AS (ORDER BY position DESC, id DESC)) AS page
 WHERE matches OR last OR n >= @scan
 ORDER BY position DESC, id DESC
 LIMIT @limit::bigint + 3
