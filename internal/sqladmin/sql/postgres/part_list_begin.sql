-- The beginning of a list: of the rows that are read, a bounded number in the order of an index, those that match. The last row that may be
-- read and the one behind it are returned whether they match or not, so that the caller knows where the next page begins.
-- @broker, @status, @scan rows to read, @limit rows to return, what part_matches.sql uses, @after_id and @after the position behind which to read
-- What follows are the rows to read and, in part_list_end.sql, their order: position is NULL where it is that of the ids.
SELECT n, matches, position
     , id, message_id, target_broker, status, stream, type, ordering_key, shard, priority, deferred
     , content_type, aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id, attempts, crashes
     , created_at, available_at, expires_at, locked_until, published_at, finished_at, locked_by, broker_message_id
     , last_error, payload_bytes
  FROM (SELECT m.*
             , row_number() OVER place AS n
             , lead(id) OVER place IS NULL AS last
             , m.status = @status::text AND {{include part_matches}} AS matches
          FROM (SELECT * FROM (
