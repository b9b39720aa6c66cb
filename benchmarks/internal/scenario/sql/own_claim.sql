-- Claim rows of the outbox table by hand, without order and without recovery of leases. $1 broker, $2 shard, $3 limit
-- Plan: one range scan of {{name}}_open, one TID scan for the update.
UPDATE {{table}}
   SET status       = 'processing'
     , locked_by    = 'by hand'
     , lock_token   = '00000000-0000-0000-0000-000000000001'
     , locked_until = now() + interval '5 minutes'
 WHERE ctid = ANY (ARRAY(SELECT ctid
                           FROM {{table}}
                          WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND status = 'pending'
                          ORDER BY id
                          LIMIT $3
                            FOR UPDATE SKIP LOCKED))
   AND status = 'pending'
RETURNING ctid, message_id, type, headers, payload
