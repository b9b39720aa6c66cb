-- The beginning of one branch of a list: rows as people see them, without payload and headers, and whether each is one that is asked for. The
-- index by which it reads follows. Branches are merged, newest first, and reading stops where the page is full: so all rows come, and none
-- is numbered.
-- @broker, @status, @type or '', @type_prefix or '', @key or '', @class of the error or '', @since or NULL, @until or NULL, @after_id and
-- @after the position behind which to read
SELECT 0
     , m.status = @status
       AND (@type = '' OR m.type = @type)
       AND substr(m.type, 1, length(@type_prefix)) = @type_prefix
       AND (@key = '' OR coalesce(m.ordering_key = @key, 0))
       AND (@class = '' OR coalesce(CASE WHEN json_valid(m.last_error) THEN json_extract(m.last_error, '$.class') END = @class, 0))
       AND (@since IS NULL OR m.created_at >= @since)
       AND (@until IS NULL OR m.created_at < @until) AS matches
     , m.finished_at AS position
     , {{include part_columns}}
  FROM {{table}} AS m
