-- Redrive dead letters: they may be tried again, with a fresh budget of attempts. ?1 consumer, ?2
-- message ids as a JSON array, ?3 source, or '' for all.
-- Plan: one lookup in the primary key for each id.
UPDATE {{table}}
   SET status = 'redriven', attempts = 0, updated_at = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
 WHERE consumer = ?1
   AND message_id IN (SELECT value FROM json_each(?2))
   AND (?3 = '' OR source = ?3)
   AND status = 'dead_letter'
