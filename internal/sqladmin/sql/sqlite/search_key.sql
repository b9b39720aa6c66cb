-- The rows of an ordering key, with its context or without. @term, @broker ('': all), @after_id (rows before it), @limit
-- Plan: one pass through {{name}}_search, then the rows by their ids.
{{include part_search}} WHERE m.id IN (SELECT s.id FROM {{table}} AS s INDEXED BY {{name}}_search WHERE ltrim(substr(s.ordering_key, instr(s.ordering_key, '::') + 1), ':') = ltrim(substr(@term, instr(@term, '::') + 1), ':'))
   AND (m.ordering_key = @term OR instr(@term, '::') = 0 AND instr(m.ordering_key, '::') > 0 AND substr(m.ordering_key, instr(m.ordering_key, '::') + 2) = @term)
{{include part_search_page}}
