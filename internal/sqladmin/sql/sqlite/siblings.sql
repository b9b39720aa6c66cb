-- The rows of messages that may be of the same event as one, by ids that begin alike. @message_id, @first, @last (see package
-- eventid), @shown (bytes of a payload, of which one that has more is not read), @limit
-- Plan: the rows by the unique index, in its order.
SELECT {{include part_columns}}
     , CASE WHEN length(m.payload) <= @shown THEN m.payload END
     , m.headers
  FROM {{table}} AS m
 WHERE m.message_id >= @first
   AND m.message_id <= @last
   AND m.message_id <> @message_id
 ORDER BY m.message_id, m.target_broker
 LIMIT @limit
