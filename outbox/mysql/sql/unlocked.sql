-- Which of these rows has no other session locked? It locks them until the transaction ends, and waits for none. @ids (a JSON list)
-- Plan: the rows by primary key.
SELECT m.id
  FROM (SELECT item FROM {{ids @ids}} AS list) AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
   FOR UPDATE SKIP LOCKED
