-- The rows of an aggregate. @term, @broker ('': all), @after_id (rows before it), @limit
-- Plan: one pass through {{name}}_search, then the rows by their ids.
{{include part_search}} WHERE m.id IN (SELECT s.id FROM {{table}} AS s INDEXED BY {{name}}_search WHERE s.aggregate_id = @term) AND (@aggregate_type = '' OR m.aggregate_type = @aggregate_type)
{{include part_search_page}}
