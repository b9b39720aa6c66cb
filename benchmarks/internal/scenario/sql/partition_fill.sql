-- Write published rows, the oldest first, dealt out to days of which each has as many; what was published on a day was published a minute before its end.
-- $1 first number, $2 last number, $3 rows in all, $4 days, $5 bytes of payload
-- Plan: no table is read.
INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, aggregate_type, aggregate_id, headers, payload, attempts, status, created_at, published_at, finished_at)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid
     , 'broker'
     , 'ordering::order'
     , 'Ordering.OrderPlaced.v1'
     , 'order-' || n % 100000
     , 'order'
     , (n % 100000)::text
     , '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
     , convert_to(repeat('x', $5::int), 'UTF8')
     , 1
     , 'published'
     , at
     , at
     , at
  FROM (SELECT n, (now() AT TIME ZONE 'UTC')::date::timestamp AT TIME ZONE 'UTC' - interval '1 minute'
                  - interval '1 day' * ($4::bigint - 1 - (n - 1) * $4::bigint / $3::bigint) AS at
          FROM generate_series($1::bigint, $2::bigint) AS n) AS numbers
