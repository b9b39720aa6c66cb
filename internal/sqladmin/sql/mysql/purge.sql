-- Remove rows that were locked by one of the statements expired_published.sql and expired_abandoned.sql. @ids (a JSON list)
-- Plan: the rows by primary key.
{{giving way}} DELETE m
  FROM {{ids @ids}} AS expired
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = expired.item
