-- One page of dead letters, or of redriven messages; the status is filled in. ?1 consumer, or ''
-- for all; ?2 type, or '' for all; ?3, ?4 and ?6 consumer, message id and source of the last row of
-- the page before; ?5 limit.
-- Plan: a range scan of {{name}}_age, which is sorted: dead letters are few.
SELECT consumer, message_id, coalesce(type, ''), coalesce(source, ''), attempts, updated_at, coalesce(last_error, '')
     , coalesce(attributes, ''), payload
  FROM {{table}}
 WHERE status = '{{status}}'
   AND (?1 = '' OR consumer = ?1)
   AND (?2 = '' OR type = ?2)
   AND (consumer, message_id, source) > (?3, ?4, ?6)
 ORDER BY consumer, message_id, source
 LIMIT ?5
