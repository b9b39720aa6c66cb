-- One page of dead letters, or of redriven messages; the status is filled in. ?1 consumer, or ''
-- for all; ?2 type, or '' for all; ?3, ?4 and ?6 consumer, message id and source of the last row of
-- the page before; ?5 limit. The time is in microseconds since 1970: as a time it would be taken
-- for one in the time zone of the DSN.
-- Plan: a range scan of {{name}}_age, which is sorted: dead letters are few.
SELECT consumer, LOWER(HEX(message_id)), COALESCE(type, ''), source, attempts, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at)
     , COALESCE(last_error, ''), COALESCE(attributes, ''), payload
  FROM {{table}} FORCE INDEX ({{name}}_age)
 WHERE status = '{{status}}'
   AND (?1 = '' OR consumer = ?1)
   AND (?2 = '' OR type = ?2)
   AND (consumer > ?3 OR consumer = ?3 AND (message_id > UNHEX(REPLACE(?4, '-', '')) OR message_id = UNHEX(REPLACE(?4, '-', '')) AND source > ?6))
 ORDER BY consumer, message_id, source
 LIMIT ?5
