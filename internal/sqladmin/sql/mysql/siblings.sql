-- The rows of messages that may be of the same event as one, by ids that begin alike. @message_id, @first, @last (see package
-- eventid), @shown (bytes of a payload, of which one that has more is not read), @limit
-- Plan: the rows by {{name}}_once, in its order.
SELECT {{include part_columns}}
     , CASE WHEN LENGTH(m.payload) <= @shown THEN m.payload END
     , m.headers
  FROM {{table}} AS m FORCE INDEX ({{name}}_once)
 WHERE m.message_id >= UNHEX(REPLACE(@first, '-', ''))
   AND m.message_id <= UNHEX(REPLACE(@last, '-', ''))
   AND m.message_id <> UNHEX(REPLACE(@message_id, '-', ''))
 ORDER BY m.message_id, m.target_broker
 LIMIT @limit
