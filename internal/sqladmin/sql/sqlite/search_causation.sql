-- The rows of what a message has caused. @term, @broker ('': all), @after_id (rows before it), @limit
-- Plan: one pass through {{name}}_search, then the rows by their ids.
{{include part_search}} WHERE m.id IN (SELECT s.id FROM {{table}} AS s INDEXED BY {{name}}_search WHERE s.causation_id = @term)
{{include part_search_page}}
