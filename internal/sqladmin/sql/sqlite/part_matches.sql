-- Whether a row m is one that is asked for. @type or '', @type_prefix or '', @key (with its context or without) or '', @aggregate (its id, with its type
-- or without) or '', @correlation (@correlated: the same as an id is stored) or '', @tenant or '', @class of the error or '', @since or NULL, @until or NULL
coalesce((@type = '' OR m.type = @type)
       AND substr(m.type, 1, length(@type_prefix)) = @type_prefix
       AND (@key = '' OR m.ordering_key = @key OR instr(@key, '::') = 0 AND instr(m.ordering_key, '::') > 0 AND substr(m.ordering_key, instr(m.ordering_key, '::') + 2) = @key)
       AND (@aggregate = '' OR @aggregate IN (m.aggregate_id, m.aggregate_type || '-' || m.aggregate_id, m.aggregate_type || ' ' || m.aggregate_id))
       AND (@correlation = '' OR m.correlation_id IN (@correlation, @correlated))
       AND (@tenant = '' OR m.tenant_id = @tenant)
       AND (@class = '' OR CASE WHEN json_valid(m.last_error) THEN json_extract(m.last_error, '$.class') END = @class)
       AND (@since IS NULL OR m.created_at >= @since)
       AND (@until IS NULL OR m.created_at < @until), 0)
