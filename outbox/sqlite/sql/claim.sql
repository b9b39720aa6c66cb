-- Claim the chosen rows. Named parameters: ids (JSON), worker, token, now, lease in microseconds, shared
-- (others of the process have claimed rows), most (bytes of a payload that is read).
UPDATE {{table}}
   SET status       = 'processing'
     , locked_by    = :worker
     , lock_token   = :token
     , locked_until = :now + :lease
     , attempts     = attempts + (status = 'processing' AND isolated AND attempts < 1048575)
     , crashes      = crashes + (status = 'processing' AND crashes < 1048575)
     , isolated     = NOT :shared AND json_array_length(:ids) = 1
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status IN ('pending', 'failed', 'processing') AND coalesce(locked_until, 0) <= :now
RETURNING id, message_id, stream, type, coalesce(ordering_key, ''), priority, content_type, CASE WHEN length(payload) <= :most THEN payload ELSE x'' END, coalesce(headers, '')
        , coalesce(correlation_id, ''), attempts, crashes, created_at, CASE WHEN expires_at <= :now THEN -1 WHEN expires_at < :now + 315576000000000 THEN expires_at - :now ELSE 0 END
        , CASE WHEN length(payload) > :most THEN length(payload) ELSE 0 END
