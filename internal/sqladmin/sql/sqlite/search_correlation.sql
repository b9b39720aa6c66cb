-- The rows of a correlation id. @term, @broker ('': all), @after_id (rows before it), @limit
-- Plan: {{name}}_search by its first column.
{{include part_search}} INDEXED BY {{name}}_search
 WHERE m.correlation_id = @term
{{include part_search_page}}
