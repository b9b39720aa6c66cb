-- Remove abandoned rows in the name of an operator. Runs under the shards' locks, which pick.sql has added to. @ids (a JSON list)
-- Plan: the rows by primary key.
{{giving way}} DELETE m
  FROM {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.item
