-- Read what a claim took. It runs after the claim's commit: a claimer that is stopped, or cut off, while it receives a batch would otherwise
-- keep the rows locked for as long as the server waits for it to read. @ids (a JSON list, ascending), @token,
-- @most bytes of a payload that is read
-- Plan: the rows by primary key.
SELECT m.id, m.message_id, m.stream, m.type, COALESCE(m.ordering_key, ''), m.priority, m.content_type, CASE WHEN LENGTH(m.payload) <= @most THEN m.payload ELSE '' END, COALESCE(m.headers, '')
     , COALESCE(m.correlation_id, ''), m.attempts, m.crashes, {{micros m.created_at}}, CASE WHEN m.expires_at <= UTC_TIMESTAMP(6) THEN -1
            WHEN m.expires_at < UTC_TIMESTAMP(6) + INTERVAL 10 YEAR THEN TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), m.expires_at) ELSE 0 END
     , CASE WHEN LENGTH(m.payload) > @most THEN LENGTH(m.payload) ELSE 0 END
  FROM {{ids @ids}} AS claimed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = claimed.item
 WHERE m.lock_token = @token
 ORDER BY claimed.place
