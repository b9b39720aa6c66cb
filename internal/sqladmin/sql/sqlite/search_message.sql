-- The rows of a message. @message_id, @broker ('': all), @after_id, @limit
-- Plan: the rows by the unique index.
{{include part_search}} WHERE m.message_id = @message_id
{{include part_search_page}}
