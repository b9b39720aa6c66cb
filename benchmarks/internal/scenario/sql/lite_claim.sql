-- Claim the first pending rows. Parameters: token, lease, broker, now, limit.
-- Plan: one range scan of {{name}}_open, the rows by primary key.
UPDATE {{table}}
   SET status = 'processing', locked_by = 'hand', lock_token = ?, locked_until = ?
 WHERE id IN (SELECT id
                FROM {{table}} INDEXED BY {{name}}_open
               WHERE target_broker = ? AND shard = 0 AND finished_at IS NULL AND deferred = 0 AND coalesce(locked_until, 0) <= ?
               ORDER BY id
               LIMIT ?)
RETURNING id, message_id, type, headers, payload
