-- The rows of a trace, by the traceparent among their headers. @term, @broker ('': all), @after_id (rows before it), @limit
-- Plan: one pass through {{name}}_search, then the rows by their ids.
{{include part_search}} WHERE m.id IN (SELECT s.id FROM {{table}} AS s INDEXED BY {{name}}_search WHERE substr(s.headers, instr(s.headers, '"traceparent":"00-') + 18, 32) = @term) AND instr(m.headers, '"traceparent":"00-') > 0
{{include part_search_page}}
