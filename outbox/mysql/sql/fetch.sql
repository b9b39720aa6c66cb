-- Read what a claim took. It runs after the claim's commit: a claimer that is stopped, or cut off, while it receives a batch would otherwise
-- keep the rows locked for as long as the server waits for it to read. @ids (a JSON list, ascending), @token (hex digits),
-- @broker, @most bytes of a payload that is read
-- Plan: the rows by primary key.
SELECT m.id, m.message_id, LENGTH(m.target_broker) = LENGTH(@broker), m.stream, m.type, COALESCE(m.ordering_key, ''), m.priority, m.content_type, CASE WHEN LENGTH(m.payload) <= @most THEN m.payload ELSE '' END, CASE WHEN LENGTH(m.headers) > 65536 THEN 'too long' ELSE COALESCE(m.headers, '') END
     , COALESCE(m.correlation_id, ''), m.attempts, m.crashes, {{micros m.created_at}}, CASE WHEN m.expires_at <= UTC_TIMESTAMP(6) THEN -1
            WHEN m.expires_at < UTC_TIMESTAMP(6) + INTERVAL 10 YEAR THEN TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), m.expires_at) ELSE 0 END
     , CASE WHEN LENGTH(m.payload) > @most THEN LENGTH(m.payload) ELSE 0 END
  FROM {{ids @ids}} AS claimed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = claimed.item
 WHERE m.lock_token = UNHEX(@token)
 ORDER BY claimed.place
