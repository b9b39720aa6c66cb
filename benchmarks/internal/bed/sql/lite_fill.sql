-- Write a backlog into a table of SQLite.
-- Named parameters: rows, broker, keys, payload in bytes, stream, seed. Plan: no table is read.
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)
INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, headers, payload)
SELECT printf('00000000-0000-4000-8000-%012x', n)
     , :broker
     , :stream
     , 'Ordering.OrderPlaced.v1'
       -- A multiplication that shuffles: neighbours have keys far apart, and each key its share.
     , 'order-' || ((n * 2654435761 + :seed) % :keys)
     , '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
     , CAST(replace(printf('%0*d', :payload, 0), '0', 'x') AS BLOB)
  FROM numbers
