-- Which of these rows are finished? @ids (a JSON list)
-- Plan: the rows by primary key.
SELECT m.id
  FROM {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
 WHERE m.finished_at IS NOT NULL
