-- The rows m of a search, as list.go reads them.
SELECT {{include part_columns}}
  FROM {{table}} AS m
