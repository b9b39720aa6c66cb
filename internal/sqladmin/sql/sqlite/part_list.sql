-- The beginning of one branch of a list: rows as people see them, without payload and headers, and whether each is one that is asked for. The
-- index by which it reads follows. Branches are merged, newest first, and reading stops where the page is full: so all rows come, and none
-- is numbered.
-- @broker, @status, what part_matches.sql uses, @after_id and @after the position behind which to read
SELECT 0
     , m.status = @status AND {{include part_matches}} AS matches
     , m.finished_at AS position
     , {{include part_columns}}
  FROM {{table}} AS m
