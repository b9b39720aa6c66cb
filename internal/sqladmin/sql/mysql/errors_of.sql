-- The last errors of some rows. @ids (a JSON list)
-- Plan: the rows by primary key.
SELECT m.id, m.last_error
  FROM {{ids @ids}} AS asked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = asked.item
