-- Rows of a broker that may be stranded: @limit deferred rows, by id. The first column is true: {{name}}_times lets no lease and no schedule be
-- without end, so that there are no others. @broker, @after_id behind which rows are read, @limit
-- Plan: a range scan of {{name}}_deferred.
SELECT true, m.id, lower(m.message_id), m.status, m.type, m.ordering_key, m.shard, m.deferred, m.created_at
  FROM {{table}} AS m INDEXED BY {{name}}_deferred
 WHERE m.target_broker = @broker AND m.deferred = 1 AND m.finished_at IS NULL AND m.id > @after_id
 ORDER BY m.id
 LIMIT @limit
