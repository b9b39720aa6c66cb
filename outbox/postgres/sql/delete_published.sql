-- Remove what the broker has confirmed, if the rows are still ours: in place of mark_published.sql where a broker's rows are not kept.
-- $1 broker, $2 shard, $3 token, $4 first id, $5 last id, $6 ids
-- Plan: one range scan of {{name}}_open, joined by hash with the ids.
DELETE FROM {{table}} AS m
 USING unnest($6::bigint[]) AS d (id)
 WHERE m.target_broker = $1 AND m.shard = $2 AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
   AND m.id BETWEEN $4 AND $5 AND m.id = d.id
   AND m.lock_token = $3 AND m.status = 'processing'
