-- The rows that an operator's filter selects, without those that a worker has claimed: see part_find_where.sql.
-- Payloads and headers are not read: an operator need not have the right to.
SELECT m.id, m.message_id::text, m.target_broker
  FROM (SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
           FROM {{table}} WHERE finished_at IS NULL AND NOT deferred AND available_at IS NULL AND @statuses::text[] && '{pending,processing,failed}'
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
           FROM {{table}} WHERE finished_at IS NULL AND deferred AND available_at IS NULL AND @statuses::text[] && '{pending,processing,failed}'
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
           FROM {{table}} WHERE available_at IS NOT NULL AND @statuses::text[] && '{pending,processing,failed}'
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
           FROM {{table}} WHERE published_at IS NOT NULL AND 'published' = ANY (@statuses::text[])
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
           FROM {{table}} WHERE finished_at IS NOT NULL AND published_at IS NULL AND 'abandoned' = ANY (@statuses::text[])) AS m
{{include part_find_where}}
