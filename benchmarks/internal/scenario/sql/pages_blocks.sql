-- The first deferred row of each key is its block; that of one key in ten was abandoned, and an operator must act.
-- Plan: one scan of {{name}}_deferred_key, the blocks by primary key.
WITH blocks AS (
    INSERT INTO {{table}}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
    SELECT DISTINCT ON (target_broker, ordering_key) target_broker, shard, ordering_key, id, message_id
         , CASE WHEN ordering_key LIKE '%7' THEN 'infinity' ELSE now() + interval '1 hour' END
         , CASE WHEN ordering_key LIKE '%7' THEN 'operator' ELSE 'backoff' END
      FROM {{table}}
     WHERE deferred AND finished_at IS NULL
     ORDER BY target_broker, ordering_key, id
    RETURNING target_broker, block_message_id, reason
)
UPDATE {{table}} AS m
   SET status      = CASE WHEN reason = 'operator' THEN 'abandoned' ELSE 'failed' END
     , finished_at = CASE WHEN reason = 'operator' THEN now() END
     , deferred    = reason <> 'operator'
     , last_error  = '{"class":"retryable","message":"no route to host","at":"2026-02-03T04:05:06Z","attempt":3}'
  FROM blocks
 WHERE m.message_id = block_message_id AND m.target_broker = blocks.target_broker
