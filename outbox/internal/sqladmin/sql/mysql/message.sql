-- The rows of one message. @message_id
-- Plan: the rows by {{name}}_once.
SELECT {{include part_columns}}
     , m.payload
     , m.headers
  FROM {{table}} AS m FORCE INDEX ({{name}}_once)
 WHERE m.message_id = UNHEX(REPLACE(@message_id, '-', ''))
 ORDER BY m.target_broker
