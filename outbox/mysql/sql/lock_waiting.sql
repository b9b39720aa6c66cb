-- Lock rows that are to become blocks, those that still wait. @ids (a JSON list) Plan: the rows by primary key.
SELECT m.id
  FROM {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
 WHERE m.status IN ('pending', 'failed') AND m.deferred = FALSE AND (m.locked_until > UTC_TIMESTAMP(6) OR m.available_at > UTC_TIMESTAMP(6))
   FOR UPDATE
