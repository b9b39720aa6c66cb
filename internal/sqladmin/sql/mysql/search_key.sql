-- The rows of an ordering key, with its context or without. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too, as bytes: their hashes collide, and =
-- takes trailing spaces for nothing.
-- Plan: one pass through {{name}}_search, then the rows by their ids.
{{include part_search}} (SELECT id FROM {{table}} FORCE INDEX ({{name}}_search) WHERE search_key = CRC32(TRIM(LEADING ':' FROM SUBSTRING(@term, LOCATE('::', @term) + 1))) AND id < @after_id) AS s
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = s.id
 WHERE (CAST(m.ordering_key AS BINARY) = CAST(@term AS BINARY) OR LOCATE('::', @term) = 0 AND LOCATE('::', m.ordering_key) > 0
        AND CAST(SUBSTRING(m.ordering_key, LOCATE('::', m.ordering_key) + 2) AS BINARY) = CAST(@term AS BINARY))
{{include part_search_page}}
