-- A claim by hand on MySQL: the first pending rows of a shard, which other workers pass over. Parameters: broker, shard, limit.
-- Plan: one range scan of {{name}}_queue.
SELECT id, message_id, stream, type, ordering_key, headers, payload
  FROM {{table}} FORCE INDEX ({{name}}_queue)
 WHERE target_broker = ? AND queue = ? AND finished_at IS NULL AND status = 'pending'
 ORDER BY id
 LIMIT ?
   FOR UPDATE SKIP LOCKED
