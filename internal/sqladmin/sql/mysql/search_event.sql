-- Rows of messages whose ids begin alike, which may tell one event under several types. @low, @high, @broker ('': all), @after_id, @limit. In no
-- order: whoever writes such ids in masses must not make a search read them all.
-- Plan: a range of {{name}}_once, which stops at the limit.
{{include part_search}} {{table}} AS m FORCE INDEX ({{name}}_once)
 WHERE m.message_id BETWEEN UNHEX(REPLACE(@low, '-', '')) AND UNHEX(REPLACE(@high, '-', '')) AND m.id < @after_id
   AND (@broker = '' OR m.target_broker = @broker)
 LIMIT @limit
