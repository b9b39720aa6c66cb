-- The rows of one message. @message_id, @shown (bytes of a payload, of which one that has more is not read), @limit
-- Plan, with settings_browse.sql: {{name}}_pkey.
SELECT {{include part_columns}}
     , {{content CASE WHEN octet_length(m.payload) <= @shown::bigint THEN m.payload END else NULL::bytea}}, {{content m.headers else NULL::text}}
  FROM {{table}} AS m
 WHERE m.message_id = @message_id::text::uuid
 ORDER BY m.target_broker
 LIMIT @limit
