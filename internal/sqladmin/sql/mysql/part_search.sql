-- The rows m of a search, as list.go reads them, found in s.
SELECT {{include part_columns}}
  FROM
