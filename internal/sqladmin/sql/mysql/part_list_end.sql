 ORDER BY position DESC, id DESC
 LIMIT @scan_1) AS entries)
-- The rows that match, the last one that may be read and the one behind it, so that the caller knows where the next page begins.
SELECT s.place
     , m.status = @status AND {{include part_matches}} AS matches
     , {{micros s.position}} AS position
     , {{include part_columns}}
  FROM seen AS s
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = s.id
 WHERE m.status = @status AND {{include part_matches}}
    OR s.place >= @scan
    OR s.place = (SELECT MAX(place) FROM seen)
 ORDER BY s.place
 LIMIT @limit_2
