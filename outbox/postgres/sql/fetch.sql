-- Read what the claim before this statement took. It runs after the claim's commit: a claimer that is stopped, or cut
-- off, while it receives a batch would otherwise keep the shard's lock for as long as the database waits for it to read.
-- $1 broker, $2 shard, $3 token, $4 bytes of a payload above which it is not read
-- Plan: one range scan of {{name}}_open.
SELECT id, message_id, stream, type, coalesce(ordering_key, ''), priority, content_type, CASE WHEN octet_length(payload) <= $4::bigint THEN payload ELSE '' END, coalesce(headers, '')
     , coalesce(correlation_id, ''), attempts, crashes
     , CASE WHEN isfinite(created_at) THEN created_at ELSE statement_timestamp() END, CASE WHEN expires_at <= statement_timestamp() THEN -1
            WHEN expires_at < statement_timestamp() + interval '10 years'
            THEN extract(epoch FROM expires_at - statement_timestamp()) * 1000000 ELSE 0 END::bigint
     , CASE WHEN octet_length(payload) > $4::bigint THEN octet_length(payload) END
  FROM {{table}}
 WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL
   AND id BETWEEN current_setting('fanout.first')::bigint AND current_setting('fanout.last')::bigint
   AND lock_token = $3
 ORDER BY id
