-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the gate of their key. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs under the lanes' locks, when the gates are in their places.
-- $1 message ids, $2 their brokers, $3 statuses, $4 new time to live in microseconds, or 0
-- Plan: the rows by primary key, the gates by {{name}}_waiting_key.
WITH back AS (
UPDATE {{table}} AS m
   SET status       = 'pending'
     , published_at = NULL
     , finished_at  = NULL
     , available_at = NULL
     , expires_at   = CASE WHEN $4::bigint > 0 THEN statement_timestamp() + $4::bigint * interval '1 microsecond'
                           WHEN m.expires_at > statement_timestamp() THEN m.expires_at END
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , attempts     = 0
     , crashes      = 0
     , isolated     = false
     , parked       = EXISTS (SELECT FROM {{table}}_waiting AS w
                               WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = m.target_broker AND w.gate_id < m.id)
  FROM unnest($1::text[]::uuid[], $2::text[]) AS picked (message_id, target_broker)
 WHERE m.message_id = ANY ($1::text[]::uuid[]) AND m.message_id = picked.message_id AND m.target_broker = picked.target_broker AND m.status = ANY ($3::text[])
RETURNING m.target_broker, m.lane
)
INSERT INTO {{table}}_lanes AS l (target_broker, lane, reopened)
SELECT DISTINCT target_broker, lane % 4, 1 FROM back
    ON CONFLICT (target_broker, lane) DO UPDATE SET reopened = l.reopened + 1
