-- Take rows out of the way of claims; those that a worker has claimed stay. @ids (a JSON list) Plan: the rows by primary key.
{{giving way}} UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
   SET m.deferred = TRUE
 WHERE m.deferred = FALSE AND m.status IN ('pending', 'failed')
