-- The rows of messages whose ids lie between two. @low, @high, @broker ('': all), @after_id, @limit
-- Plan, with settings_browse.sql: {{name}}_pkey.
{{include part_search}} WHERE m.message_id BETWEEN @low::text::uuid AND @high::text::uuid
{{include part_search_page}}
