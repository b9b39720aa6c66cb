-- Read what the claim before this statement took. It runs after the claim's commit: a claimer that is stopped, or cut
-- off, while it receives a batch would otherwise keep the shard locked for as long as the server waits for it to read.
-- @token, @most bytes of a payload that is read
-- Ids are sent as text: the binary form of a uniqueidentifier has its first bytes swapped, and what the driver makes of
-- that depends on the DSN.
-- Plan: one seek of {{name}}_pkey per row of the table variable.
SELECT m.id AS fanout_id
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.stream
     , m.type
     , COALESCE(m.ordering_key, N'') AS ordering_key
     , m.priority
     , m.content_type
     , COALESCE(m.headers, N'') AS headers
     , COALESCE(m.correlation_id, N'') AS correlation_id
     , m.attempts
     , m.crashes
     , m.created_at
     , CASE WHEN m.expires_at <= @now THEN -1
            WHEN m.expires_at < DATEADD(year, 10, @now) THEN DATEDIFF_BIG(microsecond, @now, m.expires_at) ELSE 0 END AS expires_in
     , CASE WHEN DATALENGTH(m.payload) <= @most THEN m.payload ELSE 0x END AS payload
     , CASE WHEN DATALENGTH(m.payload) > @most THEN DATALENGTH(m.payload) ELSE 0 END AS unread
  FROM @claimed AS c
 INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = c.id
 WHERE m.lock_token = CONVERT(uniqueidentifier, @token)
 ORDER BY m.id;
