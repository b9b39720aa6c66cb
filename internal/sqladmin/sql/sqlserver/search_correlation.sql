-- The rows of a correlation id. @term, @broker (N'': all), @after_id (rows before it), @limit. Texts are compared, too, with their lengths: their checksums
-- collide, and = takes trailing spaces for nothing.
-- Plan: a seek of {{name}}_search.
SET LOCK_TIMEOUT 1000;
{{include part_search}} WITH (INDEX({{name}}_search))
 WHERE m.search_correlation = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.correlation_id = @term AND DATALENGTH(m.correlation_id) = DATALENGTH(@term)
{{include part_search_page}}
