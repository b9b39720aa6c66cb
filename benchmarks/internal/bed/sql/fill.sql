-- Write many rows, dealt out in turn to brokers, each of which has its own number of ordering keys.
-- $1 first number, $2 last number, $3 brokers, $4 keys of each broker, $5 prefix of the keys, $6 bytes of payload,
-- $7 whether the rows are published already, $8 seed, $9 rows of a hundred with one key more, $10 stream
-- Plan: no table is read.
INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, headers, payload, attempts, status, published_at, finished_at)
SELECT lpad(to_hex(n), 32, '0')::uuid
     , ($3::text[])[broker]
     , $10::text
     , 'Ordering.OrderPlaced.v1'
       -- A multiplication that shuffles: neighbours have keys far apart, and each key its share.
     , $5::text || CASE WHEN (n / cardinality($3::text[]) * 48271 + $8::bigint) % 65537 % 100 < $9::int THEN 'hot'
                        ELSE ((n / cardinality($3::text[]) * 2654435761 + $8::bigint) % ($4::bigint[])[broker])::text END
     , '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'
     , convert_to(repeat('x', $6::int), 'UTF8')
     , $7::boolean::int
     , CASE WHEN $7 THEN 'published' ELSE 'pending' END
     , CASE WHEN $7 THEN at END
     , CASE WHEN $7 THEN at END
  FROM (SELECT n, 1 + (n % cardinality($3::text[]))::int AS broker, now() - interval '1 hour' AS at
          FROM generate_series($1::bigint, $2::bigint) AS n) AS numbers
