-- Count the events whose rows are not one for each broker, or were not written by one statement. $1 number of brokers
-- Plan: one scan of the table, and a sort.
SELECT count(*)
  FROM (SELECT FROM {{table}}
         GROUP BY message_id
        HAVING count(DISTINCT target_broker) <> $1::int OR count(DISTINCT (xmin::text, cmin::text)) <> 1) AS apart
