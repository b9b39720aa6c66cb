-- One branch of a list: rows as people look at them, without payload and headers, and whether each is one that is asked for. Where it looks
-- is in list_shard.sql and the others beside it; branches are merged, newest first, and reading stops where the page is full.
-- Named parameters: status, type or '', prefix of the type or '', key or '', class or '', since and until or NULL.
SELECT m.status = :status
       AND (:type = '' OR m.type = :type)
       AND substr(m.type, 1, length(:prefix)) = :prefix
       AND (:key = '' OR coalesce(m.ordering_key = :key, 0))
       AND (:class = '' OR coalesce(CASE WHEN json_valid(m.last_error) THEN json_extract(m.last_error, '$.class') END = :class, 0))
       AND (:since IS NULL OR m.created_at >= :since)
       AND (:until IS NULL OR m.created_at < :until) AS matched
     , {{columns}}
  FROM {{table}} AS m {{rows}}
