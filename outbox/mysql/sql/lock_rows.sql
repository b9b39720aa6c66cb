-- Lock rows in the order of the list, those that are not finished, and tell of each whether it is in the claim's way and waits for a time.
-- @ids (a JSON list) Plan: the rows by primary key.
{{giving way}} SELECT m.id
     , m.status IN ('pending', 'failed') AND m.deferred = FALSE AND m.available_at IS NULL
       AND COALESCE(m.locked_until > UTC_TIMESTAMP(6), FALSE)
  FROM (SELECT item FROM {{ids @ids}} AS list) AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
 WHERE m.finished_at IS NULL
   FOR UPDATE
