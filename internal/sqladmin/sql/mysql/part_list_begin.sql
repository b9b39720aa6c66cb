-- The rows that are read for a page, in the order in which they are read: their ids alone, so that little is sorted.
-- @broker, @status, what part_matches.sql uses, @after and @after_id the position behind which to read, @limit rows at most of @scan that are read; @limit_2 and @scan_1 are two and one more
WITH seen AS (
    SELECT id, position, ROW_NUMBER() OVER (ORDER BY position DESC, id DESC) AS place
      FROM (
