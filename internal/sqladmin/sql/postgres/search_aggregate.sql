-- The rows of an aggregate. @term (its id), @aggregate_type ('': any), @broker ('': all), @after_id (rows before it), @limit. Texts are compared,
-- too: their hashes collide.
-- Plan, with settings_browse.sql: one pass through {{name}}_search, whose entries tell which rows have the hash.
{{include part_search}} WHERE hashtext(m.aggregate_id) = hashtext(@term::text) AND m.aggregate_id = @term::text AND (@aggregate_type::text = '' OR m.aggregate_type = @aggregate_type::text)
{{include part_search_page}}
