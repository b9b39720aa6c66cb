-- Remove what the broker has confirmed, if the rows are still ours: in place of mark_published.sql where a broker's rows are not kept.
-- @ids (a JSON list), @token (hex digits)
-- Plan: the rows by primary key.
{{giving way}} DELETE m
  FROM {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
 WHERE m.lock_token = UNHEX(@token) AND m.status = 'processing'
