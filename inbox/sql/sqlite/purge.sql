-- Remove one batch of rows of one status, which is filled in, as are the index that has them and, where it is {{name}}_open, its
-- condition. ?1 retention in microseconds, ?2 limit.
-- Plan: one range scan of the index, one look into the primary key for each row.
DELETE FROM {{table}}
 WHERE (consumer, message_id) IN (SELECT consumer, message_id
                                    FROM {{table}} INDEXED BY {{name}}{{index}}
                                   WHERE status = '{{status}}'{{open}}
                                     AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
                                   ORDER BY updated_at
                                   LIMIT ?2)
   AND status = '{{status}}'
   AND updated_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
