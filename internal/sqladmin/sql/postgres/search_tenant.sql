-- The rows of a tenant. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too: their hashes collide.
-- Plan, with settings_browse.sql: one pass through {{name}}_search from the highest id down, until the page is full; it reads the rows that have the hash.
{{include part_search}} WHERE coalesce(hashtext(m.tenant_id) % 32767, 32767)::smallint = (hashtext(@term::text) % 32767)::smallint AND m.tenant_id = @term::text
{{include part_search_page}}
