-- The rows of one message. @message_id, @shown (bytes of a payload, of which one that has more is not read), @limit
-- Plan: the rows by the unique index.
SELECT {{include part_columns}}
     , CASE WHEN length(m.payload) <= @shown THEN m.payload END
     , m.headers
  FROM {{table}} AS m
 WHERE m.message_id = @message_id
 ORDER BY m.target_broker
 LIMIT @limit
