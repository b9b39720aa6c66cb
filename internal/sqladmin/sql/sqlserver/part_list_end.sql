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
                                        AND {{include part_matches}}
                                        THEN 1 ELSE 0 END) AS matches) AS tested
 WHERE tested.matches = 1 OR s.place >= @scan OR s.place = (SELECT MAX(place) FROM @seen)
 ORDER BY s.place;
