-- Move what the broker has confirmed to the history, if the rows are still ours: in place of mark_published.sql where the outbox is partitioned.
-- $1 broker, $2 shard, $3 token, $4 first id, $5 last id, $6 ids, $7 the broker's ids
-- Plan: one range scan of {{name}}_open, joined by hash with the ids.
WITH moved AS (
    DELETE FROM {{table}} AS m
     USING unnest($6::bigint[], $7::text[]) AS d (id, confirmed)
     WHERE m.target_broker = $1 AND m.shard = $2 AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
       AND m.id BETWEEN $4 AND $5 AND m.id = d.id
       AND m.lock_token = $3 AND m.status = 'processing'
    RETURNING m.id, m.created_at, m.available_at, m.expires_at, m.message_id, m.priority, m.shard, m.target_broker
            , m.stream, m.type, m.ordering_key, m.content_type, m.aggregate_type, m.aggregate_id, m.correlation_id, m.causation_id
            , m.tenant_id, m.headers, m.last_error, m.deferred, m.isolated, m.crashes, m.attempts, m.payload
            , d.confirmed
)
INSERT INTO {{table}}_history
     ( id, created_at, available_at, expires_at, message_id, priority, shard, target_broker
     , stream, type, ordering_key, content_type, aggregate_type, aggregate_id, correlation_id, causation_id
     , tenant_id, headers, last_error, deferred, isolated, crashes, attempts, locked_until
     , published_at, finished_at, lock_token, status, locked_by, broker_message_id, payload)
SELECT m.id, m.created_at, m.available_at, m.expires_at, m.message_id, m.priority, m.shard, m.target_broker
     , m.stream, m.type, m.ordering_key, m.content_type, m.aggregate_type, m.aggregate_id, m.correlation_id, m.causation_id
     , m.tenant_id, m.headers, m.last_error, m.deferred, m.isolated, m.crashes, least(m.attempts + 1, 1048575), NULL
     , statement_timestamp(), statement_timestamp(), NULL, 'published', NULL, nullif(m.confirmed, ''), m.payload
  FROM moved AS m
