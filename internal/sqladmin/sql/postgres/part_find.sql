-- The rows that an operator's filter selects, without those that a worker has claimed.
-- @broker or '', @statuses, @type or '', @type_prefix or '', @key or '', @message_ids, none = any, @class of the error or '', @since or NULL,
-- @until or NULL, @waiting whether pending rows count only when they wait for a time, @refused class of the error of rows that are left
-- out, or ''
-- Payloads and headers are not read: an operator need not have the right to.
SELECT m.id, m.message_id::text, m.target_broker
  FROM (SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE finished_at IS NULL AND NOT deferred AND @statuses::text[] && '{pending,processing,failed}'
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE finished_at IS NULL AND deferred AND @statuses::text[] && '{pending,processing,failed}'
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE published_at IS NOT NULL AND 'published' = ANY (@statuses::text[])
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE finished_at IS NOT NULL AND published_at IS NULL AND 'abandoned' = ANY (@statuses::text[])) AS m
 WHERE m.status = ANY (@statuses::text[])
   AND (@broker::text = '' OR m.target_broker = @broker)
   AND (@type::text = '' OR m.type = @type)
   AND (@type_prefix::text = '' OR starts_with(m.type, @type_prefix))
   AND (@key::text = '' OR m.ordering_key = @key)
   AND (cardinality(@message_ids::text[]) = 0 OR m.message_id = ANY (@message_ids::text[]::uuid[]))
   AND (@class::text = '' OR substring(m.last_error FROM '"class" *: *"([^"]*)"') = @class)
   AND (@refused::text = '' OR substring(m.last_error FROM '"class" *: *"([^"]*)"') IS DISTINCT FROM @refused)
   AND (@since::timestamptz IS NULL OR m.created_at >= @since)
   AND (@until::timestamptz IS NULL OR m.created_at < @until)
   AND (NOT @waiting::boolean OR m.status <> 'pending' OR greatest(m.locked_until, m.available_at) > statement_timestamp())
   AND (m.status <> 'processing' OR m.locked_until <= statement_timestamp())
