-- The last error of each broker, among the rows that are not published. The time of an error stands in its JSON; texts
-- that are no such JSON come last.
SELECT target_broker, last_error
  FROM (SELECT target_broker, last_error
             , row_number() OVER (PARTITION BY target_broker ORDER BY at DESC, id DESC) AS place
          FROM (SELECT id, target_broker, last_error
                     , CASE WHEN json_valid(last_error) THEN json_extract(last_error, '$.at') END AS at -- NULL sorts lowest
                  FROM {{table}}
                 WHERE last_error IS NOT NULL AND status <> 'published'))
 WHERE place = 1
