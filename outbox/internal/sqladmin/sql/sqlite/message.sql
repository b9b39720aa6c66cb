-- The rows of one message. @message_id
-- Plan: the rows by the unique index.
SELECT {{include part_columns}}
     , m.payload
     , m.headers
  FROM {{table}} AS m
 WHERE m.message_id = @message_id
 ORDER BY m.target_broker
