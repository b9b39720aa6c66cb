-- Whether a row m is one that is asked for. @type or '', @type_prefix or '', @key (with its context or without) or '', @aggregate (its id, with its type
-- or without) or '', @correlation (@correlated: the same as an id is stored) or '', @tenant or '', @class of the error or '', @since or NULL, @until or NULL
coalesce((@type::text = '' OR m.type = @type)
                        AND (@type_prefix::text = '' OR starts_with(m.type, @type_prefix))
                        AND (@key::text = '' OR m.ordering_key = @key
                             OR strpos(@key, '::') = 0 AND strpos(m.ordering_key, '::') > 0 AND substr(m.ordering_key, strpos(m.ordering_key, '::') + 2) = @key)
                        AND (@aggregate::text = '' OR @aggregate IN (m.aggregate_id, m.aggregate_type || '-' || m.aggregate_id, m.aggregate_type || ' ' || m.aggregate_id))
                        AND (@correlation::text = '' OR m.correlation_id IN (@correlation, @correlated::text))
                        AND (@tenant::text = '' OR m.tenant_id = @tenant)
                        AND (@class::text = '' OR substring(m.last_error FROM '"class" *: *"([^"]*)"') = @class)
                        AND (@since::timestamptz IS NULL OR m.created_at >= @since)
                        AND (@until::timestamptz IS NULL OR m.created_at < @until), false)
