-- The last error of each broker, among the rows that are not published. The time of an error stands in its JSON; texts
-- that are no such JSON come last. Texts are not sorted: the last of each broker is found first, then read.
SELECT m.target_broker, m.last_error
  FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY target_broker ORDER BY happened DESC, id DESC) AS place
          FROM (SELECT id, target_broker, CASE WHEN JSON_VALID(last_error) THEN JSON_UNQUOTE(JSON_EXTRACT(last_error, '$.at')) END AS happened
                  FROM {{table}}
                 WHERE last_error IS NOT NULL AND status <> 'published') AS failed) AS ranked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = ranked.id
 WHERE ranked.place = 1
 ORDER BY m.target_broker
