-- The rows of some messages that a filter selects. @message_ids (a JSON list), and what part_find_where.sql uses
-- Plan: the rows by the unique index.
SELECT m.id, lower(m.message_id), m.target_broker
  FROM (SELECT id, message_id, target_broker, status, type, ordering_key, aggregate_type, aggregate_id, correlation_id, tenant_id, last_error, created_at, locked_until, available_at, deferred, shard
          FROM {{table}}
         WHERE message_id IN (SELECT value FROM json_each(@message_ids))) AS m
{{include part_find_where}}
