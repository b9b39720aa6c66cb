-- The rows of a correlation id. @term, @broker ('': all), @after_id (rows before it), @limit
-- Plan: {{name}}_correlation.
{{include part_search}} INDEXED BY {{name}}_correlation
 WHERE m.correlation_id = @term
{{include part_search_page}}
