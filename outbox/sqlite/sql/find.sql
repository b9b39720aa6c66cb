-- The rows that an operator's filter selects, without those that a worker has claimed. It runs before any lock is taken; under the lock pick.sql tests them again. How
-- many, and in which order, is added where it is used. Where it looks is in find_rows.sql or find_ids.sql.
-- Named parameters: those of these, broker or '', statuses (JSON), type or '', prefix of the type or '', key or '',
-- class or '', refused (class of rows that are left out) or '', since and until or NULL, waiting (whether pending rows count only when they wait for a time), now.
SELECT m.id
  FROM (
        {{rows}}
       ) AS m
 WHERE m.status IN (SELECT value FROM json_each(:statuses))
   AND (:broker = '' OR m.target_broker = :broker)
   AND (:type = '' OR m.type = :type)
   AND substr(m.type, 1, length(:prefix)) = :prefix
   AND (:key = '' OR m.ordering_key = :key)
   AND (:class = '' OR CASE WHEN json_valid(m.last_error) THEN json_extract(m.last_error, '$.class') END = :class)
   AND (:refused = '' OR CASE WHEN json_valid(m.last_error) THEN json_extract(m.last_error, '$.class') END IS NOT :refused)
   AND (:since IS NULL OR m.created_at >= :since)
   AND (:until IS NULL OR m.created_at < :until)
   AND (NOT :waiting OR m.status <> 'pending' OR max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) > :now)
   AND (m.status <> 'processing' OR m.locked_until <= :now)
