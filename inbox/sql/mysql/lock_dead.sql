-- Lock a batch of a consumer's dead letters, to redrive them in the same transaction. What another
-- one has locked is passed over. ?1 consumer, ?2 type, or '' for all; ?3 limit.
-- Plan: a range scan of {{name}}_age.
SELECT consumer, HEX(message_id), source
  FROM {{table}} FORCE INDEX ({{name}}_age)
 WHERE status = 'dead_letter' AND consumer = ?1 AND (?2 = '' OR type = ?2)
 LIMIT ?3
   FOR UPDATE SKIP LOCKED
