-- Remove one batch of rows of one status, which is filled in. ?1 retention in microseconds, ?2
-- limit.
-- Plan: one range scan of {{name}}_age, one lookup in the primary key for each row.
DELETE FROM {{table}}
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM {{table}} INDEXED BY {{name}}_age
                                           WHERE status = '{{status}}'
                                             AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
                                           ORDER BY updated_at
                                           LIMIT ?2)
   AND status = '{{status}}'
   AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
