-- The rows of a trace, by the traceparent among their headers. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too: their hashes collide.
-- Plan, with settings_browse.sql: one pass through {{name}}_search, whose entries tell which rows have the hash.
{{include part_search}} WHERE hashtext(substr(m.headers, strpos(m.headers, '"traceparent":"00-') + 18, 32)) = hashtext(@term::text) AND substr(m.headers, strpos(m.headers, '"traceparent":"00-') + 18, 32) = @term::text AND strpos(m.headers, '"traceparent":"00-') > 0
{{include part_search_page}}
