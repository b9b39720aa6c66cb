-- What people see of a row m, in the order in which list.go reads it.
m.id, m.message_id::text AS message_id, m.target_broker, m.status, m.stream, m.type, m.ordering_key, m.shard, m.priority, m.deferred
     , m.content_type, m.aggregate_type, m.aggregate_id, m.correlation_id, m.causation_id, m.tenant_id, m.attempts, m.crashes
     , m.created_at, m.available_at, m.expires_at, m.locked_until, m.published_at, m.finished_at, m.locked_by, m.broker_message_id
     , m.last_error, {{content octet_length(m.payload) else 0}} AS payload_bytes
