-- What an operator's filter selects of the rows m, without those that a worker has claimed. = takes trailing spaces for nothing, so lengths
-- are compared, too.
-- @broker or '', @statuses (a JSON list), @type or '', @type_prefix or '', @key or '', @key_prefix or '', @class of the error or '', @since or NULL,
-- @until or NULL, @waiting whether pending rows count only when they wait for a time, @refused class of the error of rows that are left out, or '',
-- @unacknowledged whether acknowledged rows are left out
 WHERE JSON_CONTAINS(@statuses, JSON_QUOTE(m.status))
   AND (LENGTH(@broker) = 0 OR m.target_broker = @broker)
   AND (LENGTH(@type) = 0 OR m.type = @type AND LENGTH(m.type) = LENGTH(@type))
   AND (LENGTH(@type_prefix) = 0 OR LOCATE(@type_prefix, m.type) = 1)
   AND (LENGTH(@key) = 0 OR m.ordering_key = @key AND LENGTH(m.ordering_key) = LENGTH(@key))
   AND (LENGTH(@key_prefix) = 0 OR LOCATE(@key_prefix, m.ordering_key) = 1)
   AND (LENGTH(@class) = 0 OR CASE WHEN JSON_VALID(m.last_error) THEN JSON_UNQUOTE(JSON_EXTRACT(m.last_error, '$.class')) END = @class)
   AND (LENGTH(@refused) = 0 OR NOT (CASE WHEN JSON_VALID(m.last_error) THEN JSON_UNQUOTE(JSON_EXTRACT(m.last_error, '$.class')) END <=> @refused))
   AND (@since IS NULL OR m.created_at >= @since)
   AND (@until IS NULL OR m.created_at < @until)
   AND (NOT @waiting OR m.status <> 'pending' OR m.locked_until > UTC_TIMESTAMP(6) OR m.available_at > UTC_TIMESTAMP(6))
   AND (m.status <> 'processing' OR m.locked_until <= UTC_TIMESTAMP(6))
   AND (NOT @unacknowledged OR m.last_error IS NULL OR LEFT(m.last_error, 21) <> '{"acknowledged":true,')
