-- The rows of a correlation id. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too: their hashes collide.
-- Plan, with settings_browse.sql: {{name}}_search by its first column.
{{include part_search}} WHERE hashtext(m.correlation_id) = hashtext(@term::text) AND m.correlation_id = @term::text
{{include part_search_page}}
