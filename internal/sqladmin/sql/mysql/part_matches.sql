-- = takes trailing spaces for nothing, so lengths are compared, too.
COALESCE(m.status = @status
       AND (LENGTH(@type) = 0 OR m.type = @type AND LENGTH(m.type) = LENGTH(@type))
       AND (LENGTH(@type_prefix) = 0 OR LOCATE(@type_prefix, m.type) = 1)
       AND (LENGTH(@key) = 0 OR m.ordering_key = @key AND LENGTH(m.ordering_key) = LENGTH(@key))
       AND (LENGTH(@class) = 0 OR CASE WHEN JSON_VALID(m.last_error) THEN JSON_UNQUOTE(JSON_EXTRACT(m.last_error, '$.class')) END = @class)
       AND (@since IS NULL OR m.created_at >= @since)
       AND (@until IS NULL OR m.created_at < @until), FALSE)
