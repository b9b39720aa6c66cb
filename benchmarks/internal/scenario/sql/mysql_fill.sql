-- Fill a table with rows: their number of keys, the payload, how many of the first are published (four times), from which number on, how many.
INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, payload, status, attempts, published_at, finished_at)
SELECT UNHEX(LPAD(HEX(n), 32, '0')), 'default', 'ordering::order', 'Ordering.OrderPlaced.v1', CONCAT('order-', n * 7919 % ?), ?
     , IF(n < ?, 'published', 'pending'), 1 * (n < ?), IF(n < ?, UTC_TIMESTAMP(6), NULL), IF(n < ?, UTC_TIMESTAMP(6), NULL)
  FROM (SELECT ? + high.slot * 1000 + low.slot AS n
          FROM {{table}}_key_slots AS high CROSS JOIN {{table}}_key_slots AS low
         WHERE low.slot < 1000 AND high.slot < 100
         ORDER BY n
         LIMIT ?) AS numbers
