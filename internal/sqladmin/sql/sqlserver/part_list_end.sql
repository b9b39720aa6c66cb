-- The end of a list: one seek of {{name}}_pkey per row that may do, in order, until there are @limit that match. The last row that may be read
-- and the one behind it are returned whether they match or not, also where another transaction is writing them, so that the caller knows where the
-- next page begins.
SELECT TOP (@limit + 2) s.place AS fanout_place
     , tested.matches
     , s.at AS position
     , s.id
{{include part_columns_behind_id}}
  FROM @seen AS s
  LEFT JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON m.id = s.id AND (s.status IS NULL OR s.status = @status)
 CROSS APPLY (SELECT CONVERT(bit, CASE WHEN m.status = @status
                                        AND m.target_broker = @broker
                                            -- = ignores trailing spaces, the length does not.
                                        AND (@type = N'' OR (m.type = @type AND DATALENGTH(m.type) = DATALENGTH(@type)))
                                        AND (@type_prefix = N'' OR CASE WHEN DATALENGTH(@type_prefix) > 1024 THEN 0 ELSE CHARINDEX(@type_prefix, m.type) END = 1)
                                        AND (@key = N'' OR (m.ordering_key = @key AND DATALENGTH(m.ordering_key) = DATALENGTH(@key)))
                                        AND (@class = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                                                                  THEN JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2 END = @class)
                                        AND (@since = N'' OR m.created_at >= CONVERT(datetime2(6), @since, 126))
                                        AND (@until = N'' OR m.created_at < CONVERT(datetime2(6), @until, 126)) THEN 1 ELSE 0 END) AS matches) AS tested
 WHERE tested.matches = 1 OR s.place >= @scan OR s.place = (SELECT MAX(place) FROM @seen)
 ORDER BY s.place;
