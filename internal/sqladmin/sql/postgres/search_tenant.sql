-- The rows of a tenant. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too: their hashes collide.
-- Plan, with settings_browse.sql: one pass through {{name}}_search, whose entries tell which rows have the hash.
{{include part_search}} WHERE hashtext(m.tenant_id) = hashtext(@term::text) AND m.tenant_id = @term::text
{{include part_search_page}}
