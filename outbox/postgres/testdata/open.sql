-- Open rows: some that can be claimed, a few of them after a failure; some that wait in backoff and are deferred, half of them with
-- a key of their own, of which one in fifty is due; a tenth as many that are scheduled, of which one in fifty is due; some that stand behind a thousand blocks of which 800 are done.
INSERT INTO plans (message_id, target_broker, stream, type, ordering_key, priority, payload, status, attempts, last_error)
SELECT lpad(to_hex(%finished + i), 32, '0')::uuid, CASE WHEN i % 5 = 0 THEN 'a' ELSE 'b' END, 's', 't', 'key-' || i % 1000
     , CASE WHEN i % 100 = 2 THEN -1 ELSE 0 END, ''
     , CASE WHEN i % 1000 = 3 THEN 'failed' ELSE 'pending' END
     , CASE WHEN i % 1000 = 3 THEN 1 ELSE 0 END
     , CASE WHEN i % 1000 = 3 THEN '{"class":"retryable","at":"2026-01-02T03:04:05Z"}' END
  FROM generate_series(1, %claimable) AS i;
WITH waiting AS (
    INSERT INTO plans (message_id, target_broker, stream, type, ordering_key, payload, deferred, locked_until)
    SELECT lpad(to_hex(%finished + %claimable + i), 32, '0')::uuid, 'b', 's', 't', CASE WHEN i % 2 = 1 THEN 'later-' || i END, '', true
         , CASE WHEN i % 50 = 0 THEN now() - interval '1 minute' ELSE now() + i * interval '1 second' END
      FROM generate_series(1, %scheduled) AS i
    RETURNING target_broker, shard, ordering_key, id, message_id, locked_until
)
INSERT INTO plans_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
SELECT target_broker, shard, ordering_key, id, message_id, locked_until, 'backoff' FROM waiting;
INSERT INTO plans (message_id, target_broker, stream, type, ordering_key, payload, available_at)
SELECT gen_random_uuid(), 'b', 's', 't', CASE WHEN i % 2 = 1 THEN 'later-' || i END, '', CASE WHEN i % 50 = 0 THEN now() - interval '1 minute' ELSE now() + i * interval '1 second' END
  FROM generate_series(1, %scheduled / 10) AS i;
WITH followers AS (
    INSERT INTO plans (message_id, target_broker, stream, type, ordering_key, payload, deferred)
    SELECT lpad(to_hex(%finished + %claimable + %scheduled + i), 32, '0')::uuid, 'b', 's', 't', 'block-' || i % 1000, '', true FROM generate_series(1, %followers) AS i
    RETURNING target_broker, shard, ordering_key
), keys AS (
    SELECT DISTINCT target_broker, shard, ordering_key FROM followers
)
INSERT INTO plans_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
SELECT target_broker, shard, ordering_key, n, lpad(to_hex(n), 32, '0')::uuid
     , CASE WHEN n % 5 > 0 THEN NULL ELSE now() + n * interval '1 second' END
     , 'backoff'
  FROM keys
 CROSS JOIN LATERAL (SELECT substr(ordering_key, 6)::int * 5 + 1 AS g) AS numbered
 CROSS JOIN LATERAL (SELECT g + CASE WHEN g % 25 = 1 THEN 4 ELSE 0 END AS n) AS block;
