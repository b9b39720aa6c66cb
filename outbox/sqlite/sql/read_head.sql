-- Read the first rows of a shard, up to one of them, all of which head.sql has found free; claim_head.sql then claims them. Together
-- they cost less than one UPDATE with RETURNING, which visits each row twice.
-- Named parameters: broker, shard, last, now, most (bytes of a payload that is read). Plan: one range scan of {{name}}_open.
SELECT id, message_id, stream, type, coalesce(ordering_key, ''), priority, content_type, CASE WHEN length(payload) <= :most THEN payload ELSE x'' END, coalesce(headers, '')
     , coalesce(correlation_id, ''), attempts, crashes, created_at, CASE WHEN expires_at <= :now THEN -1 WHEN expires_at < :now + 315576000000000 THEN expires_at - :now ELSE 0 END
     , CASE WHEN length(payload) > :most THEN length(payload) ELSE 0 END
  FROM {{table}} INDEXED BY {{name}}_open
 WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL AND id <= :last
 ORDER BY id
