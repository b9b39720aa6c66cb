-- The rows of an ordering key, with its context or without. @term, @broker ('': all), @after_id (rows before it), @limit
-- Plan: {{name}}_search by its first column.
{{include part_search}} INDEXED BY {{name}}_search
 WHERE ltrim(substr(m.ordering_key, instr(m.ordering_key, '::') + 1), ':') = ltrim(substr(@term, instr(@term, '::') + 1), ':')
   AND (m.ordering_key = @term OR instr(@term, '::') = 0 AND instr(m.ordering_key, '::') > 0 AND substr(m.ordering_key, instr(m.ordering_key, '::') + 2) = @term)
{{include part_search_page}}
