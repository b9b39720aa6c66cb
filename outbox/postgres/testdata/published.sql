-- Finished rows of two brokers, one in a hundred abandoned. No log: the table lives for one test.
ALTER TABLE plans SET UNLOGGED;
ALTER TABLE plans_key_blocks SET UNLOGGED;
ALTER TABLE plans SET (autovacuum_enabled = false);
ALTER TABLE plans_key_blocks SET (autovacuum_enabled = false);
INSERT INTO plans (message_id, target_broker, stream, type, ordering_key, payload, status, published_at, finished_at, last_error)
SELECT lpad(to_hex(i), 32, '0')::uuid, CASE WHEN i % 5 = 0 THEN 'a' ELSE 'b' END, 's', 't', 'key-' || i % 1000, ''
     , CASE WHEN i % 100 = 1 THEN 'abandoned' ELSE 'published' END
     , CASE WHEN i % 100 <> 1 THEN done END
     , done
     , CASE WHEN i % 100 = 1 THEN '{"class":"permanent","at":"2026-01-02T03:04:05Z"}' END
  FROM generate_series(1, %finished) AS i
 CROSS JOIN LATERAL (SELECT now() - (500000 - i / 500) * interval '1 second' AS done) AS finished;
