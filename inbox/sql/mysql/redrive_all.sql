-- Redrive dead letters that lock_dead.sql has locked. ?1 their keys as a JSON array.
-- Plan: one lookup in the primary key for each row.
UPDATE {{keys}}
   SET m.status = 'redriven', m.attempts = 0, m.updated_at = UTC_TIMESTAMP(6)
