-- The rows of messages whose ids lie between two. @low, @high, @broker ('': all), @after_id, @limit
-- Plan: the rows by {{name}}_once.
{{include part_search}} {{table}} AS m FORCE INDEX ({{name}}_once)
 WHERE m.message_id BETWEEN UNHEX(REPLACE(@low, '-', '')) AND UNHEX(REPLACE(@high, '-', '')) AND m.id < @after_id
{{include part_search_page}}
