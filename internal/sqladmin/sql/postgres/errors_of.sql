-- The last errors of some rows of a broker. @broker, @message_ids
-- Plan, with settings_browse.sql: the rows by {{name}}_pkey.
SELECT m.id, m.last_error
  FROM {{table}} AS m
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.target_broker || '' = @broker
