-- The rows of a message. @message_id, @broker ('': all), @after_id, @limit
-- Plan: the rows by {{name}}_once.
{{include part_search}} {{table}} AS m FORCE INDEX ({{name}}_once)
 WHERE m.message_id = UNHEX(REPLACE(@message_id, '-', '')) AND m.id < @after_id
{{include part_search_page}}
