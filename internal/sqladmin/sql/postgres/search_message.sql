-- The rows of a message. @message_id, @broker ('': all), @after_id, @limit
-- Plan, with settings_browse.sql: {{name}}_pkey.
{{include part_search}} WHERE m.message_id = @message_id::text::uuid
{{include part_search_page}}
