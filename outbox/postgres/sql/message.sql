-- The rows of one message. $1 message id
-- Plan, with browse_settings.sql: {{name}}_pkey.
SELECT {{columns}}, {{content}}
  FROM {{table}} AS m
 WHERE m.message_id = $1::text::uuid
 ORDER BY m.target_broker
