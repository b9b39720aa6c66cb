-- The rows of an ordering key, with its context or without. @term, @broker ('': all), @after_id (rows before it), @limit. Texts are compared, too: their hashes collide.
-- Plan, with settings_browse.sql: one pass through {{name}}_search from the highest id down, until the page is full; it reads the rows that have the hash.
{{include part_search}} WHERE coalesce(hashtext(ltrim(substr(m.ordering_key, strpos(m.ordering_key, '::') + 1), ':')) % 32767, 32767)::smallint
       = (hashtext(ltrim(substr(@term::text, strpos(@term::text, '::') + 1), ':')) % 32767)::smallint
   AND (m.ordering_key = @term::text OR strpos(@term::text, '::') = 0 AND strpos(m.ordering_key, '::') > 0 AND substr(m.ordering_key, strpos(m.ordering_key, '::') + 2) = @term::text)
{{include part_search_page}}
