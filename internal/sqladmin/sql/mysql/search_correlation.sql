-- The rows of a correlation id. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too, as bytes: their hashes collide, and =
-- takes trailing spaces for nothing.
-- Plan: {{name}}_search, then the rows by their ids.
{{include part_search}} (SELECT id FROM {{table}} FORCE INDEX ({{name}}_search) WHERE search_correlation = CRC32(@term) AND id < @after_id) AS s
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = s.id
 WHERE CAST(m.correlation_id AS BINARY) = CAST(@term AS BINARY)
{{include part_search_page}}
