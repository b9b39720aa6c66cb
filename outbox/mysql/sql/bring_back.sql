-- Bring rows back into the way of claims. @ids (a JSON list) Plan: the rows by primary key.
{{giving way}} UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
   SET m.deferred = FALSE
 WHERE m.deferred = TRUE
