-- The rows of an aggregate. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too, as bytes: their hashes collide, and =
-- takes trailing spaces for nothing.
-- Plan: one pass through {{name}}_search, then the rows by their ids.
{{include part_search}} (SELECT id FROM {{table}} FORCE INDEX ({{name}}_search) WHERE search_aggregate = CRC32(@term) AND id < @after_id) AS s
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = s.id
 WHERE CAST(m.aggregate_id AS BINARY) = CAST(@term AS BINARY) AND (LENGTH(@aggregate_type) = 0 OR CAST(m.aggregate_type AS BINARY) = CAST(@aggregate_type AS BINARY))
{{include part_search_page}}
