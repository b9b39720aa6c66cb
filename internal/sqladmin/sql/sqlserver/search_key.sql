-- The rows of an ordering key, with its context or without. @term, @broker (N'': all), @after_id (rows before it), @limit. Texts are compared, too, with their lengths: their checksums
-- collide, and = takes trailing spaces for nothing.
-- Plan: one pass through {{name}}_search.
SET LOCK_TIMEOUT 1000;
{{include part_search}} WITH (INDEX({{name}}_search))
 WHERE m.search_key = BINARY_CHECKSUM(CONVERT(nvarchar(512), CASE CHARINDEX(N'::', @term) WHEN 0 THEN @term ELSE SUBSTRING(@term, CHARINDEX(N'::', @term) + 2, 512) END)) AND (m.ordering_key = @term AND DATALENGTH(m.ordering_key) = DATALENGTH(@term) OR CHARINDEX(N'::', @term) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @term AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@term))
{{include part_search_page}}
