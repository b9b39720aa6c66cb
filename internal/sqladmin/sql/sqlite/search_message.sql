-- The rows of messages whose ids lie between two. @low, @high, @broker ('': all), @after_id, @limit
-- Plan: the rows by the unique index.
{{include part_search}} WHERE m.message_id BETWEEN @low AND @high
{{include part_search_page}}
