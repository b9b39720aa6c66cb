-- Rows of messages whose ids begin alike, which may tell one event under several types. @low, @high, @broker ('': all), @after_id, @limit. In no
-- order: whoever writes such ids in masses must not make a search read them all.
-- Plan, with settings_browse.sql: a range of {{name}}_pkey, which stops at the limit.
{{include part_search}} WHERE m.message_id BETWEEN @low::text::uuid AND @high::text::uuid AND m.id < @after_id AND (@broker::text = '' OR m.target_broker = @broker)
 LIMIT @limit
