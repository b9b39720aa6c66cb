-- Claim rows of the minimal table. $1 broker, $2 shard, which it does not have, $3 limit
-- Plan: one range scan of the claim's index, one TID scan for the update.
UPDATE {{table}}_minimal
   SET status = 1, locked_until = now() + interval '5 minutes'
 WHERE ctid = ANY (ARRAY(SELECT ctid
                           FROM {{table}}_minimal
                          WHERE target_broker = $1 AND published_at IS NULL AND status = 0 AND $2::int = 0
                          ORDER BY available_at, id
                          LIMIT $3
                            FOR UPDATE SKIP LOCKED))
   AND status = 0
RETURNING ctid, message_id, type, headers, payload
