-- The rows of a trace, by the traceparent among their headers. @term, @broker (N'': all), @after_id (rows before it), @limit. Texts are compared, too, with their lengths: their checksums
-- collide, and = takes trailing spaces for nothing.
-- Plan: one pass through {{name}}_search.
SET LOCK_TIMEOUT 1000;
{{include part_search}} WITH (INDEX({{name}}_search))
 WHERE m.search_trace = BINARY_CHECKSUM(CONVERT(nvarchar(32), @term)) AND SUBSTRING(m.headers, CHARINDEX(N'"traceparent":"00-', m.headers) + 18, 32) = @term AND CHARINDEX(N'"traceparent":"00-', m.headers) > 0
{{include part_search_page}}
