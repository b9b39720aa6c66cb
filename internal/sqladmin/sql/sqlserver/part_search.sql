-- The rows m of a search, as list.go reads them. Committed rows, and none that another transaction is writing.
SELECT TOP (@limit) m.id AS fanout_row
{{include part_columns_behind_id}}
  FROM {{table}} AS m
