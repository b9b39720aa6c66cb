-- The last error of each broker, among the rows that are not published. The time of an error stands in its JSON; texts
-- that are no such JSON come last. Texts are not sorted: the last of each broker is found first, then read.
SELECT m.target_broker AS fanout_failed
     , m.last_error
  FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY target_broker ORDER BY happened DESC, id DESC) AS place
          FROM (SELECT id
                     , target_broker
                     , CASE WHEN ISJSON(last_error) = 1
                            THEN JSON_VALUE(last_error, '$.at') COLLATE Latin1_General_100_BIN2 END AS happened
                  FROM {{table}} WITH (READCOMMITTEDLOCK, READPAST)
                 WHERE last_error IS NOT NULL AND status <> N'published') AS failed) AS ranked
 INNER JOIN {{table}} AS m WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON m.id = ranked.id
 WHERE ranked.place = 1 AND m.last_error IS NOT NULL
 ORDER BY m.target_broker;
