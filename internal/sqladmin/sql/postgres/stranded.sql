-- Rows of a broker that may be stranded: @limit deferred rows, by id. The first column is true: {{name}}_times lets no lease and no schedule be
-- without end, so that there are no others. @broker, @after_id behind which rows are read, @limit
-- Plan: one range scan of {{name}}_deferred.
SELECT true, m.id, m.message_id::text, m.status, m.type, m.ordering_key, m.shard, m.deferred, m.created_at
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.deferred AND m.finished_at IS NULL AND m.shard >= 0 AND m.id > @after_id::bigint
 ORDER BY m.id
 LIMIT @limit::bigint
