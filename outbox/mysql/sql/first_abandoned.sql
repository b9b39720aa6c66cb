-- Of rows that are about to be abandoned, and are still ours, the first of each key, which becomes its block. @ids (a JSON list), @token (hex digits)
-- Plan: the rows by primary key.
SELECT MIN(m.id)
  FROM {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
 WHERE m.lock_token = UNHEX(@token) AND m.status = 'processing' AND m.ordering_key IS NOT NULL
 GROUP BY m.target_broker, SHA2(m.ordering_key, 256)
