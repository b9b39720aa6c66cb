-- One page of published rows, the last first.
-- Plan, with settings_browse.sql: one range scan of {{name}}_published, backwards, with an incremental sort of all that were published at the
-- instants on the page, as those of a batch are: be they more than @scan. id in that index would cost each message 11 bytes of log.
{{include part_list_begin}}
SELECT {{include part_columns}}
     , m.published_at AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.published_at IS NOT NULL AND (m.published_at, m.id) < (coalesce(@after::timestamptz, 'infinity'), @after_id)
   AND m.published_at < 'infinity' AND m.published_at > '-infinity'
) AS rows ORDER BY position DESC, id DESC LIMIT @scan::bigint + 1) AS m
        WINDOW place AS (ORDER BY position DESC, id DESC)) AS page
 WHERE matches OR last OR n >= @scan
 ORDER BY position DESC, id DESC
 LIMIT @limit::bigint + 3
