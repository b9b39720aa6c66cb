-- The rows of what a message has caused. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too: their hashes collide.
-- Plan, with settings_browse.sql: one pass through {{name}}_search, whose entries tell which rows have the hash.
{{include part_search}} WHERE hashtext(m.causation_id) = hashtext(@term::text) AND m.causation_id = @term::text
{{include part_search_page}}
