-- The rows of one message. Named parameter: message. Plan: the rows by the unique index.
SELECT {{columns}}
     , m.payload
     , m.headers
  FROM {{table}} AS m
 WHERE m.message_id = :message
 ORDER BY m.target_broker
