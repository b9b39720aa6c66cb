-- The rows of an aggregate. @term, @broker (N'': all), @after_id (rows before it), @limit. Texts are compared, too, with their lengths: their checksums
-- collide, and = takes trailing spaces for nothing.
-- Plan: one pass through {{name}}_search.
SET LOCK_TIMEOUT 1000;
{{include part_search}} WITH (INDEX({{name}}_search))
 WHERE m.search_aggregate = BINARY_CHECKSUM(CONVERT(nvarchar(512), @term)) AND m.aggregate_id = @term AND DATALENGTH(m.aggregate_id) = DATALENGTH(@term) AND (@aggregate_type = N'' OR m.aggregate_type = @aggregate_type AND DATALENGTH(m.aggregate_type) = DATALENGTH(@aggregate_type))
{{include part_search_page}}
