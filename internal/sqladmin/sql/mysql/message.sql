-- The rows of one message. @message_id, @shown (bytes of a payload, of which one that has more is not read), @limit
-- Plan: the rows by {{name}}_once.
SELECT {{include part_columns}}
     , CASE WHEN LENGTH(m.payload) <= @shown THEN m.payload END
     , m.headers
  FROM {{table}} AS m FORCE INDEX ({{name}}_once)
 WHERE m.message_id = UNHEX(REPLACE(@message_id, '-', ''))
 ORDER BY m.target_broker
 LIMIT @limit
