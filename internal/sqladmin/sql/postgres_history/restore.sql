-- Bring rows of the history back to the outbox, published as they are, so that an operator can act on them as on any other. Of a message that stands in
-- both, the one of the outbox counts; of one that stands in the history twice, one. Runs under the shards' locks. @message_ids, @brokers
-- Plan: the rows by {{name}}_history_pkey, in each partition.
WITH moved AS (
    DELETE FROM {{table}}_history AS m
     USING unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS found (message_id, target_broker)
     WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.message_id = found.message_id AND m.target_broker = found.target_broker
       AND NOT EXISTS (SELECT FROM {{table}} AS o WHERE o.message_id = found.message_id AND o.target_broker = found.target_broker)
    RETURNING m.*
)
INSERT INTO {{table}}
     ( id, created_at, available_at, expires_at, message_id, priority, target_broker, stream
     , type, ordering_key, content_type, aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id
     , headers, last_error, deferred, isolated, crashes, attempts, locked_until, published_at
     , finished_at, lock_token, status, locked_by, broker_message_id, payload)
SELECT id, created_at, available_at, expires_at, message_id, priority, target_broker, stream
     , type, ordering_key, content_type, aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id
     , headers, last_error, deferred, isolated, crashes, attempts, locked_until, published_at
     , finished_at, lock_token, status, locked_by, broker_message_id, payload
  FROM moved
    ON CONFLICT (message_id, target_broker) DO NOTHING
