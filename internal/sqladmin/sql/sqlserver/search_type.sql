-- The rows of an event type. @term, @broker (N'': all), @after_id (rows before it), @limit. Texts are compared, too, with their lengths: their checksums
-- collide, and = takes trailing spaces for nothing.
-- Plan: one pass through {{name}}_search.
SET LOCK_TIMEOUT 1000;
{{include part_search}} WITH (INDEX({{name}}_search))
 WHERE m.search_type = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.type = @term AND DATALENGTH(m.type) = DATALENGTH(@term)
{{include part_search_page}}
