-- Lock one batch of rows of one status, which is filled in, to remove them in the same transaction.
-- What another one has locked is passed over. ?1 retention in microseconds, ?2 limit.
-- Plan: one range scan of {{name}}_age.
SELECT consumer, HEX(message_id), source
  FROM {{table}} FORCE INDEX ({{name}}_age)
 WHERE status = '{{status}}'
   AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ?1 MICROSECOND
 ORDER BY updated_at
 LIMIT ?2
   FOR UPDATE SKIP LOCKED
