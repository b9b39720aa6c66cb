-- Whether a row m is one that is asked for. @type or '', @type_prefix or '', @key (with its context or without) or '', @aggregate (its id, with its type
-- or without) or '', @correlation (@correlated: the same as an id is stored) or '', @tenant or '', @class of the error or '', @since or NULL, @until or NULL
-- = takes trailing spaces for nothing, so lengths are compared, too.
COALESCE((LENGTH(@type) = 0 OR m.type = @type AND LENGTH(m.type) = LENGTH(@type))
       AND (LENGTH(@type_prefix) = 0 OR LOCATE(@type_prefix, m.type) = 1)
       AND (LENGTH(@key) = 0 OR CAST(m.ordering_key AS BINARY) = CAST(@key AS BINARY) OR LOCATE('::', @key) = 0 AND LOCATE('::', m.ordering_key) > 0
            AND CAST(SUBSTRING(m.ordering_key, LOCATE('::', m.ordering_key) + 2) AS BINARY) = CAST(@key AS BINARY))
       AND (LENGTH(@aggregate) = 0 OR CAST(m.aggregate_id AS BINARY) = CAST(@aggregate AS BINARY)
            OR CAST(CONCAT(m.aggregate_type, '-', m.aggregate_id) AS BINARY) = CAST(@aggregate AS BINARY)
            OR CAST(CONCAT(m.aggregate_type, ' ', m.aggregate_id) AS BINARY) = CAST(@aggregate AS BINARY))
       AND (LENGTH(@correlation) = 0 OR CAST(m.correlation_id AS BINARY) = CAST(@correlation AS BINARY) OR CAST(m.correlation_id AS BINARY) = CAST(@correlated AS BINARY))
       AND (LENGTH(@tenant) = 0 OR CAST(m.tenant_id AS BINARY) = CAST(@tenant AS BINARY))
       AND (LENGTH(@class) = 0 OR CASE WHEN JSON_VALID(m.last_error) THEN JSON_UNQUOTE(JSON_EXTRACT(m.last_error, '$.class')) END = @class)
       AND (@since IS NULL OR m.created_at >= @since)
       AND (@until IS NULL OR m.created_at < @until), FALSE)
