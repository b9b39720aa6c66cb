-- Redrive a batch of a consumer's dead letters. ?1 consumer, ?2 type, or '' for all; ?3 limit.
-- Plan: a range scan of {{name}}_age, one lookup in the primary key for each row.
UPDATE {{table}}
   SET status = 'redriven', attempts = 0, updated_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
 WHERE (consumer, message_id, source) IN (SELECT consumer, message_id, source
                                            FROM {{table}} INDEXED BY {{name}}_age
                                           WHERE status = 'dead_letter' AND consumer = ?1 AND (?2 = '' OR type = ?2)
                                           LIMIT ?3)
   AND status = 'dead_letter'
