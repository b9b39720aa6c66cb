-- Whether a row m is one that is asked for. @type or N'', @type_prefix or N'', @key (with its context or without) or N'', @aggregate (its id, with its type
-- or without) or N'', @correlation (@correlated: the same as an id is stored) or N'', @tenant or N'', @class of the error or N'', @since or N'' and @until or N'' as ISO 8601 in UTC
-- = ignores trailing spaces, the length does not.
(@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
   AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
   AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)) OR CHARINDEX(N'::', @key) = 0 AND CHARINDEX(N'::', m.ordering_key) > 0
        AND (SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512) = @key AND DATALENGTH(SUBSTRING(m.ordering_key, CHARINDEX(N'::', m.ordering_key) + 2, 512)) = DATALENGTH(@key)))
   AND (@aggregate = N'' OR (m.aggregate_id = @aggregate AND DATALENGTH(m.aggregate_id) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N'-' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N'-' + m.aggregate_id)) = DATALENGTH(@aggregate)) OR ((m.aggregate_type + N' ' + m.aggregate_id) = @aggregate AND DATALENGTH((m.aggregate_type + N' ' + m.aggregate_id)) = DATALENGTH(@aggregate)))
   AND (@correlation = N'' OR (m.correlation_id = @correlation AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlation)) OR (m.correlation_id = @correlated AND DATALENGTH(m.correlation_id) = DATALENGTH(@correlated)))
   AND (@tenant = N'' OR (m.tenant_id = @tenant AND DATALENGTH(m.tenant_id) = DATALENGTH(@tenant)))
   AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                             THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
   AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
   AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126))
