-- The rows of one message. @message_id
-- Plan, with settings_browse.sql: {{name}}_pkey.
SELECT {{include part_columns}}
     , {{content m.payload else NULL::bytea}}, {{content m.headers else NULL::text}}
  FROM {{table}} AS m
 WHERE m.message_id = @message_id::text::uuid
 ORDER BY m.target_broker
