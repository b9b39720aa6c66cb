-- Write rows that people can look at, dealt out in turn to brokers: finished ones, of which one in a hundred was abandoned, in batches of 500
-- that ended at the same instant; or open ones, of which the first are claimed, one in a thousand has failed, and one in ten stands behind
-- one of a thousand blocks.
-- $1 first number, $2 last number, $3 brokers, $4 ordering keys of each broker, $5 bytes of payload, $6 whether they are finished,
-- $7 how many of each broker's open rows are claimed, $8 number of the first open row of each broker
-- Plan: no table is read.
INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, headers, payload, attempts, status, published_at, finished_at, last_error,
                       locked_by, lock_token, locked_until, deferred)
SELECT lpad(to_hex(n), 32, '0')::uuid
     , ($3::text[])[1 + n % cardinality($3::text[])]
     , 'ordering::order'
     , 'Ordering.OrderPlaced.v1'
     , CASE WHEN deferred THEN 'blocked-' || i / 10 % 1000 ELSE 'order-' || (i * 2654435761 % $4::bigint) END
     , '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
     , convert_to(repeat('x', $5::int), 'UTF8')
     , (status <> 'pending')::int
     , status
     , CASE WHEN status = 'published' THEN ended END
     , CASE WHEN status IN ('published', 'abandoned') THEN ended END
     , CASE WHEN status IN ('failed', 'abandoned')
            THEN '{"class":"retryable","message":"connection ' || i || ' was reset by the peer","at":"2026-01-02T03:04:05.' || i || 'Z","attempt":1}' END
     , CASE WHEN status = 'processing' THEN 'host/1/default/orders/0' END
     , CASE WHEN status = 'processing' THEN gen_random_uuid() END
     , CASE WHEN status IN ('processing', 'failed') THEN now() + interval '1 hour' END
     , deferred
  FROM (SELECT n, i
             , NOT $6 AND i >= $8::bigint + $7::bigint AND i % 10 = 7 AS deferred
             , CASE WHEN $6 AND i % 100 = 99 THEN 'abandoned'
                    WHEN $6 THEN 'published'
                    WHEN i < $8::bigint + $7::bigint THEN 'processing'
                    WHEN i % 1000 = 3 THEN 'failed'
                    ELSE 'pending' END AS status
             , date_trunc('day', now()) - interval '7 days' + i / 500 * interval '50 milliseconds' AS ended
          FROM (SELECT n, n / cardinality($3::text[]) AS i FROM generate_series($1::bigint, $2::bigint) AS n) AS numbers) AS rows
