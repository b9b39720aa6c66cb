-- Write many events, each with one row for every broker; rows of an event have neighbouring ids.
-- $1 first number, $2 last number, $3 brokers, $4 ordering keys, $5 what the streams' names begin with, $6 payload, $7 seed,
-- $8 the number behind the last one of all, $9 microseconds since the last one was published, 0 = the rows are pending
-- Plan: no table is read.
INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, headers, payload, attempts, status, published_at, finished_at)
SELECT lpad(to_hex(n), 32, '0')::uuid
     , broker
     , $5::text || broker
     , 'Ordering.OrderPlaced.v1'
     , 'order-' || (n * 2654435761 + $7::bigint) % $4::bigint -- a multiplication that shuffles
     , '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
     , $6::bytea
     , CASE WHEN at IS NULL THEN 0 ELSE 1 END
     , CASE WHEN at IS NULL THEN 'pending' ELSE 'published' END
     , at
     , at
  FROM (SELECT n, CASE WHEN $9::bigint > 0
                       THEN now() - $9::bigint * interval '1 microsecond' - ($8::bigint - 1 - n) / 500 * interval '10 milliseconds' END AS at
          FROM generate_series($1::bigint, $2::bigint) AS n) AS events
 CROSS JOIN unnest($3::text[]) WITH ORDINALITY AS targets (broker, turn)
 ORDER BY n, turn
