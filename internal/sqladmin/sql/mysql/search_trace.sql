-- The rows of a trace, by the traceparent among their headers. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too, as bytes: their hashes collide, and =
-- takes trailing spaces for nothing.
-- Plan: one pass through {{name}}_search, then the rows by their ids.
{{include part_search}} (SELECT id FROM {{table}} FORCE INDEX ({{name}}_search) WHERE search_trace = CRC32(@term) AND id < @after_id) AS s
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = s.id
 WHERE SUBSTRING(m.headers, LOCATE('"traceparent":"00-', m.headers) + 18, 32) = @term AND LOCATE('"traceparent":"00-', m.headers) > 0
{{include part_search_page}}
