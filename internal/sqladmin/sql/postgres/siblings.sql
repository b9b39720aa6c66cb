-- The rows of messages that may be of the same event as one, by ids that begin alike. @message_id, @first, @last (see package
-- eventid), @shown (bytes of a payload, of which one that has more is not read), @limit
-- Plan, with settings_browse.sql: {{name}}_pkey, in its order.
SELECT {{include part_columns}}
     , {{content CASE WHEN octet_length(m.payload) <= @shown::bigint THEN m.payload END else NULL::bytea}}, {{content m.headers else NULL::text}}
  FROM {{table}} AS m
 WHERE m.message_id >= @first::text::uuid
   AND m.message_id <= @last::text::uuid
   AND m.message_id <> @message_id::text::uuid
 ORDER BY m.message_id, m.target_broker
 LIMIT @limit
