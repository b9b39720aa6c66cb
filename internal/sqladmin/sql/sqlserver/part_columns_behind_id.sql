-- What people see of a row m behind its id, in the order in which list.go reads it.
     , LOWER(CONVERT(char(36), m.message_id)) AS message_id
     , m.target_broker
     , m.status
     , m.stream
     , m.type
     , m.ordering_key
     , m.shard
     , m.priority
     , m.deferred
     , m.content_type
     , m.aggregate_type
     , m.aggregate_id
     , m.correlation_id
     , m.causation_id
     , m.tenant_id
     , m.attempts
     , m.crashes
     , m.created_at
     , m.available_at
     , m.expires_at
     , m.locked_until
     , m.published_at
     , m.finished_at
     , m.locked_by
     , m.broker_message_id
     , m.last_error
     , DATALENGTH(m.payload) AS payload_bytes
