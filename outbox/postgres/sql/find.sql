-- The rows that an operator's filter selects, without those that a worker has claimed. It runs before any lock is taken; {{name}}'s rows are tested again under the
-- locks. How many, and in which order, is added where it is used.
-- $1 broker or '', $2 statuses, $3 type or '', $4 beginning of the type or '', $5 ordering key or '',
-- $6 message ids, none = any, $7 error class or '', $8 since or NULL, $9 until or NULL,
-- $10 whether pending rows count only when they wait for a time, $12 error class of rows that are left out, or ''
-- Plan: one scan for each index that the statuses need ({{name}}_open and {{name}}_deferred_key, {{name}}_published,
-- {{name}}_abandoned), within the broker where one is named; by primary key where message ids are. It is planned for its
-- arguments each time, so that what is not asked for costs nothing. Payloads and headers are not read: an operator need not have the right to.
SELECT m.message_id, m.target_broker
  FROM (SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE finished_at IS NULL AND NOT deferred AND $2::text[] && '{pending,processing,failed}'
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE finished_at IS NULL AND deferred AND $2::text[] && '{pending,processing,failed}'
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE published_at IS NOT NULL AND 'published' = ANY ($2::text[])
         UNION ALL
        SELECT id, message_id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
           FROM {{table}} WHERE finished_at IS NOT NULL AND published_at IS NULL AND 'abandoned' = ANY ($2::text[])) AS m
 WHERE m.status = ANY ($2::text[])
   AND ($1::text = '' OR m.target_broker = $1)
   AND ($3::text = '' OR m.type = $3)
   AND ($4::text = '' OR starts_with(m.type, $4))
   AND ($5::text = '' OR m.ordering_key = $5)
   AND (cardinality($6::text[]) = 0 OR m.message_id = ANY ($6::text[]::uuid[]))
   AND ($7::text = '' OR substring(m.last_error FROM '"class" *: *"([^"]*)"') = $7)
   AND ($12::text = '' OR substring(m.last_error FROM '"class" *: *"([^"]*)"') IS DISTINCT FROM $12)
   AND ($8::timestamptz IS NULL OR m.created_at >= $8)
   AND ($9::timestamptz IS NULL OR m.created_at < $9)
   AND (NOT $10::boolean OR m.status <> 'pending' OR greatest(m.locked_until, m.available_at) > statement_timestamp())
   AND (m.status <> 'processing' OR m.locked_until <= statement_timestamp())
