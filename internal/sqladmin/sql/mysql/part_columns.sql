-- What people see of a row m, in the order in which list.go reads it.
m.id, {{uuid m.message_id}} AS message_id, m.target_broker, m.status, m.stream, m.type, m.ordering_key, m.shard, m.priority, m.deferred <> 0 AS deferred
     , m.content_type, m.aggregate_type, m.aggregate_id, m.correlation_id, m.causation_id, m.tenant_id, m.attempts, m.crashes
     , {{micros m.created_at}} AS created_at, {{micros m.available_at}} AS available_at, {{micros m.expires_at}} AS expires_at
     , {{micros m.locked_until}} AS locked_until, {{micros m.published_at}} AS published_at, {{micros m.finished_at}} AS finished_at
     , m.locked_by, m.broker_message_id, m.last_error, LENGTH(m.payload) AS payload_bytes
