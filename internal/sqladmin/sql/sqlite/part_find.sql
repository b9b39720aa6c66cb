-- The rows of one broker that a filter selects. @broker, and what part_find_where.sql uses
-- Plan: one range scan of each index that the statuses need; of {{name}}_finished one for each status.
SELECT m.id, lower(m.message_id), m.target_broker
  FROM (
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
          FROM {{table}} INDEXED BY {{name}}_open
         WHERE target_broker = @broker AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL AND EXISTS (SELECT 1 FROM json_each(@statuses) WHERE value IN ('pending', 'processing', 'failed'))
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
          FROM {{table}} INDEXED BY {{name}}_deferred_key
         WHERE target_broker = @broker AND finished_at IS NULL AND deferred = 1 AND available_at IS NULL AND EXISTS (SELECT 1 FROM json_each(@statuses) WHERE value IN ('pending', 'processing', 'failed'))
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
          FROM {{table}} INDEXED BY {{name}}_scheduled_ids
         WHERE target_broker = @broker AND available_at IS NOT NULL AND EXISTS (SELECT 1 FROM json_each(@statuses) WHERE value IN ('pending', 'processing', 'failed'))
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
          FROM {{table}} INDEXED BY {{name}}_finished
         WHERE target_broker = @broker AND finished_at IS NOT NULL AND status IN (SELECT value FROM json_each(@statuses))
       ) AS m
{{include part_find_where}}
